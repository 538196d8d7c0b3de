#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/store/token.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/host_ending.h"
#include "tandem/launch/host_watch.h"
#include "tandem/launch/launcher.h"
#include "tandem/launch/link_watch.h"
#include "tandem/launch/logs/log_directory.h"
#include "tandem/launch/logs/torchrun_options.h"
#include "tandem/launch/rendezvous.h"
#include "tandem/launch/restarts.h"
#include "tandem/launch/status/rank_status.h"
#include "tandem/launch/status/status_exchange.h"
#include "tandem/launch/status/status_server.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

/// Returns the environment variables that torchrun sets for a rank in addition to
/// to_variables() and Restarts::variables(). They override variables of the same name,
/// also those of an outer torchrun. Throws ConfigError if a rank needs a separate GPU,
/// but CUDA_VISIBLE_DEVICES lists no GPU for it.
Variables elastic_variables(
    const TorchrunOptions& options, const RankEnv& env, const GetEnv& get = get_env);

/// One start of the ranks of this host, until they have ended on all hosts.
class HostAttempt {
 public:
  /// Waits for other hosts as Rendezvous does, and throws its errors. Blocks the
  /// signals that stop a run (Supervisor). The arguments must outlive the object.
  ///
  /// `token` is null if the run has one host. `logs` is null if the ranks get no
  /// services of torchrun. On host 0, `restarts` and `changes` decide whether the ranks
  /// start again, and `status` gets the statuses of all ranks once a second.
  HostAttempt(
      const LaunchOptions& options, const TokenFile* token, Meeting meeting,
      Restarts& restarts, HostChanges& changes, LogDirectory* logs,
      StatusServer& status);

  /// Starts the ranks, waits for their end, and returns how the ranks of all hosts
  /// ended. Throws ConfigError if their program cannot be executed.
  HostEnding run();

 private:
  bool is_first() const {
    return options_.node_rank == 0;
  }
  // Starts the ranks. Returns an ending if that fails.
  std::optional<HostEnding> start();
  // Throws Error if the ranks must end while `loader` loads their program.
  void check_loader(pid_t loader);
  // Returns the ending after a signal before the first step.
  HostEnding stopped_early() const;
  bool must_end(bool failed);
  void admit_newcomers();
  // Returns the signal that stopped this launcher; 0 if there is none.
  int stop_signal() const;
  // Returns whether a signal stopped this host, but not the run.
  bool leaves() const;
  bool have_made_step() const;
  void decide(HostEnding& verdict);
  std::string exclude_hosts();
  void start_after_change(HostEnding& verdict) const;
  HostEnding finish(const HostEnding& mine);

  const LaunchOptions& options_;
  const TokenFile* token_;
  Restarts& restarts_;
  HostChanges& changes_;
  LogDirectory* logs_;
  StatusServer& status_;
  int64_t memory_kills_;
  Supervisor supervisor_;
  const Rendezvous rendezvous_;
  // Options with the hosts of this attempt: their number, and the place of this host
  // among them.
  const LaunchOptions here_;
  FailureFile failures_;
  StatusBoard board_;
  StatusExchange exchange_;
  LinkWatch links_;
  std::optional<HostWatch> watch_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  // True if the run ended on another host while this host loaded the program.
  bool over_while_loading_ = false;
  // Hosts that have joined during this attempt. The ranks are ended, so that the next
  // attempt includes these hosts.
  std::vector<int> admitted_;
};

}  // namespace tandem
