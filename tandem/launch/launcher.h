#pragma once

#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/base/store/token.h"

namespace tandem {

/// How to start the ranks of one host. Names and defaults are torchrun's.
struct LaunchOptions {
  // The program that each rank runs, with its arguments.
  std::vector<std::string> command;

  // Its main() calls serve_as_fork_server() first: it is loaded once for all ranks
  // (launch/fork_server.h). Not with local_rank_at.
  bool fork_server = false;

  // Ranks on this host.
  int nproc_per_node = 1;

  // Hosts in the run, and which one this is. With more than one, ranks meet at
  // master_addr:master_port, where the launcher of host 0 listens.
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  // 0 takes a free port; one host only.
  int master_port = 0;

  // What the ranks will say that they talk over, "" where it is not known.
  std::string backend;
  // Name of the run, "" for none: hosts that give another name are rejected.
  std::string run;
  // Who may join over the network.
  TokenOptions token;

  // Host 0 listens on all its interfaces, not only where master_addr is.
  bool listen_all = false;

  // Rank 0 of this host shares our terminal; the others' lines get a prefix.
  // Otherwise every rank's lines do.
  bool first_rank_owns_terminal = false;
  // False: lines of standard output get none, those of standard error still do.
  bool prefix_output = true;

  // Where "--local-rank=N" goes into the command, for programs that want it; 0:
  // nowhere.
  size_t local_rank_at = 0;

  // Seconds between SIGTERM and SIGKILL: when a rank failed, and when we were told to
  // stop (negative: the same).
  double grace_seconds = 5;
  double stop_grace_seconds = -1;

  // How long to wait before ranks are started: on host 0 until master_addr resolves, on
  // the others until its launcher answers. 0: the ranks wait themselves.
  double timeout_seconds = 0;

  // CPU threads of each rank; 0: its share of the usable CPUs.
  int64_t threads = 0;

  // More variables for the ranks.
  Variables variables;
};

/// Starts the ranks, forwards their output and our signals, and ends them all
/// when one fails. No rank outlives the call; the kernel kills them when the launcher
/// itself is killed.
///
/// Signals and grace are served whoever reads our output. While nobody does, ranks wait
/// in their writes once 1 MiB is held back; a run that is told to stop, or fails, drops
/// the oldest lines instead, says how many, and does not wait for a reader.
///
/// Call from the main thread. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1,
/// SIGCHLD and SIGPIPE are blocked from then on.
///
/// Throws ConfigError for an impossible option, a program that does not exist, or
/// several hosts without a token, CommError when host 0's launcher is not found in
/// time. If the ranks do not all exit with 0, the error names the rank that failed
/// first and how: ConfigError if the ranks were misused, StoppedError if a signal
/// stopped them and they saved, else Error.
void launch_ranks(const LaunchOptions& options);

/// OMP_NUM_THREADS and its like for a host with `nproc` ranks: `threads`, or for 0 the
/// usable CPUs divided among the ranks, where the user did not set them; and variables
/// that keep libraries under LibTorch quiet. For every process that trains.
Variables rank_variables(int nproc, int64_t threads = 0);

}  // namespace tandem
