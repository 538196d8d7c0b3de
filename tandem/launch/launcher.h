#pragma once

#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/base/store/token.h"

namespace tandem {

/// Options for the ranks of one host. Names and defaults are those of torchrun.
struct LaunchOptions {
  // The program that each rank runs, with its arguments.
  std::vector<std::string> command;

  // The program calls serve_as_fork_server() first in main(), so it is loaded once for
  // all ranks (launch/fork_server.h). Excludes local_rank_at.
  bool fork_server = false;

  // Ranks on this host.
  int nproc_per_node = 1;

  // Number of hosts, and number of this host. On several hosts the ranks meet at
  // master_addr:master_port, where the launcher of host 0 listens.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  // 0 chooses a free port, on one host only.
  int master_port = 0;

  // Backend of the ranks, "" if it is not known. Hosts with another backend are
  // rejected.
  std::string backend;
  // Name of the run, "" for none. Hosts with another name are rejected.
  std::string run;
  // Protects the run from other processes of the network.
  TokenOptions token;

  // Host 0 listens on all its interfaces, not only on the one of master_addr.
  bool listen_all = false;

  // Rank 0 of this host shares the launcher's terminal, and its lines get no prefix.
  bool first_rank_owns_terminal = false;
  // Lines of standard output get a prefix such as "[rank 1] ". Lines of standard error
  // get one in any case.
  bool prefix_output = true;

  // Index in the command at which "--local-rank=N" is inserted; 0 inserts nothing.
  size_t local_rank_at = 0;

  // Seconds between SIGTERM and SIGKILL after a rank failed.
  double grace_seconds = 5;
  // Seconds between SIGTERM and SIGKILL after a signal stopped the launcher; negative:
  // grace_seconds.
  double stop_grace_seconds = -1;

  // Seconds to wait before ranks are started: on host 0 until master_addr resolves, on
  // other hosts until host 0's launcher answers. 0: the ranks wait themselves.
  double timeout_seconds = 0;

  // CPU threads of each rank; 0: its share of the usable CPUs.
  int64_t threads = 0;

  // Additional variables for the ranks.
  Variables variables;
};

/// Starts the ranks of this host, forwards their output and the launcher's signals, and
/// returns when all ranks have exited with 0. If one rank fails, all are ended. No rank
/// outlives the call; if the launcher is killed, the kernel kills the ranks.
///
/// Signals and grace periods do not depend on a reader of the output. Without a
/// reader, the launcher keeps 1 MiB, and then ranks wait in their writes. A run that
/// stops or fails drops the oldest lines instead, prints their number, and does not
/// wait for a reader.
///
/// Call it from the main thread. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGCHLD and
/// SIGPIPE stay blocked afterwards.
///
/// Throws ConfigError for an impossible option, a program that does not exist, or
/// several hosts without a token; CommError if host 0's launcher does not answer in
/// time. If a rank fails, the error names the rank that failed first and the reason:
/// ConfigError if the ranks were misused, StoppedError if a signal stopped them and
/// they saved, else Error.
void launch_ranks(const LaunchOptions& options);

/// Returns variables for every process that trains on a host with `nproc` ranks:
/// OMP_NUM_THREADS and similar ones, and settings that silence libraries below
/// LibTorch. The number of threads is `threads`, or for 0 the rank's share of the
/// usable CPUs. For 0 the user's own variables are kept.
Variables rank_variables(int nproc, int64_t threads = 0);

}  // namespace tandem
