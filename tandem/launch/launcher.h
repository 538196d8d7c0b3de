#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/base/store/token.h"
#include "tandem/launch/logs/torchrun_options.h"

namespace tandem {

/// Options for the ranks of one host. The names of nproc_per_node, nnodes, node_rank,
/// master_addr and master_port are those of torchrun's flags.
struct LaunchOptions {
  // The program that each rank runs, with its arguments.
  std::vector<std::string> command;

  // True if the program calls serve_as_fork_server() first in main(). It is then loaded
  // only once for all ranks (launch/fork_server.h). Cannot be combined with
  // local_rank_at.
  bool fork_server = false;

  // True if the program calls catch_signals() (base/signals.h). Signals that arrive
  // while the program loads then take effect afterwards.
  bool holds_signals = false;

  // Number of ranks on this host.
  int nproc_per_node = 1;
  // Number of ranks in each process, for the metrics. The launcher treats a process as
  // one rank.
  int ranks_per_process = 1;

  // Number of hosts, and number of this host. On several hosts, all ranks connect to
  // master_addr:master_port, where the launcher of host 0 listens.
  int nnodes = 1;
  int node_rank = 0;
  // Least number of hosts of a run whose hosts may change; 0: all hosts take part. The
  // run then starts with min_nnodes to nnodes hosts. If another host joins, or a host
  // other than host 0 is lost or gets a signal that stops it, the launchers end the
  // ranks and start them again on the present hosts. This does not count as a restart.
  // Hosts that cause such starts again and again are excluded (launch/restarts.h).
  int min_nnodes = 0;
  std::string master_addr = "127.0.0.1";
  // Port of host 0. 0 selects a free port, which is possible only on one host.
  int master_port = 0;

  // Backend of the ranks, "" if it is not known. Hosts with another backend are
  // rejected.
  std::string backend;
  // Name of the run, "" for none. Hosts with another name are rejected.
  std::string run;
  // Settings of the token that a process needs to join a run on several hosts.
  TokenOptions token;

  // True if host 0 listens on all its interfaces, not only on the interface of
  // master_addr.
  bool listen_all = false;

  // True if the first rank of this host inherits the launcher's standard output and
  // error. Its lines then get no prefix.
  bool first_rank_owns_terminal = false;
  // True if lines of standard output get a prefix such as "[rank 1] ". Lines of
  // standard error always get a prefix.
  bool prefix_output = true;

  // Index in the command at which "--local-rank=N" is inserted; 0 inserts nothing.
  size_t local_rank_at = 0;

  // Seconds between SIGTERM and SIGKILL after a rank failed.
  double grace_seconds = 5;
  // Seconds between the forwarded signal and SIGKILL after a signal stopped the
  // launcher; negative: grace_seconds.
  double stop_grace_seconds = -1;

  // Exit code if a signal stops the run before its first step: 1, or kExitStopped if
  // the same command can be run again.
  int stopped_code = 1;

  // Timeout, in seconds, of the waits before ranks are started. Host 0 waits until
  // master_addr resolves, and other hosts wait until the launcher of host 0 answers.
  // 0: the launcher starts the ranks without waiting, unless ranks can be restarted. A
  // host counts as lost after 15 s without an answer, or after a shorter timeout. The
  // timeout also limits the time in which a fork server loads the program, and the time
  // for which a rank is suspended or frozen.
  double timeout_seconds = 0;

  // Number of times that the ranks are started again after a failure, over all hosts.
  // Equal on all hosts. Ranks can read restart_count() (launch/restarts.h).
  int max_restarts = 0;

  // Time, in seconds, for which a rank waits before the launchers log the ranks for
  // which it waits; 0: never.
  double stall_seconds = 30;

  // Address and port at which the launcher of host 0 serves the statuses of all ranks
  // over HTTP (launch/status/status_server.h); port 0: the statuses are not served over
  // TCP.
  std::string metrics_address = "127.0.0.1";
  int metrics_port = 0;
  // Directory of the run. The launcher of host 0 serves the statuses of all ranks at
  // this directory's local socket (launch/status/status_sockets.h). "": there is no
  // such socket.
  std::string out;

  // Number of CPU threads of each rank; 0: the default of rank_variables().
  int64_t threads = 0;

  // Additional environment variables for the ranks.
  Variables variables;

  // Functions that compare the hosts of a run before a host joins ranks that may be
  // started again; empty: hosts are not compared. identity() is called on host 0. It
  // returns a text for the settings and data of the host, or nullopt while the data are
  // read. check_identity() is called on other hosts with this text, about five times a
  // second until it returns true. It throws ConfigError if this host differs from host
  // 0, or the errors of reading the data.
  std::function<std::optional<std::string>()> identity;
  std::function<bool(const std::string& identity)> check_identity;

  // Called about ten times a second while ranks run; empty: nothing is called. It must
  // not block.
  std::function<void()> while_running;

  bool is_elastic() const {
    return min_nnodes > 0 && min_nnodes < nnodes;
  }
  int world_size() const {
    return nnodes * nproc_per_node * ranks_per_process;
  }
  /// Returns whether the ranks may be started again.
  bool restarts() const {
    return max_restarts > 0 || is_elastic();
  }
  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  }

  // Services of torchrun for the ranks; nullopt for none.
  std::optional<TorchrunOptions> torchrun;
};

/// Starts the ranks of this host, forwards their output and the launcher's signals, and
/// returns when all ranks have exited with 0. If a rank fails, all ranks are ended, and
/// started again as often as `max_restarts` allows (launch/restarts.h). If a host other
/// than host 0 is lost, a restart waits for a new launcher with its number, unless the
/// hosts may change. No rank outlives the call; if the launcher is killed, the kernel
/// kills the ranks.
///
/// Signals and grace periods work even if no process reads the launcher's output. The
/// launcher then stores 1 MiB of output, and ranks that write more have to wait. If the
/// run stops or fails, the launcher no longer waits for a reader: it drops the oldest
/// lines and prints their number.
///
/// Call it from the main thread. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
/// SIGCHLD and SIGPIPE stay blocked afterwards.
///
/// Throws ConfigError for an invalid option, a program that does not exist, or several
/// hosts without a token. Throws CommError if host 0's launcher does not answer in
/// time. If a rank fails, the error has the reason and usually names the rank that
/// failed first. It is a ConfigError if the rank reported a ConfigError, a StoppedError
/// if a signal stopped the ranks and they saved, otherwise an Error.
void launch_ranks(const LaunchOptions& options);

/// Returns environment variables for each process that trains on a host with `nproc`
/// ranks. They set the number of threads (OMP_NUM_THREADS and similar variables) and
/// turn off the logs of libraries. The number of threads is `threads`. If `threads` is
/// 0, it is the number of usable CPUs divided by `nproc`. Variables that are already
/// set stay unchanged, except that `threads` above 0 overrides the number of threads.
Variables rank_variables(int nproc, int64_t threads = 0);

}  // namespace tandem
