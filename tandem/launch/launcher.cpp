#include "tandem/launch/launcher.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/held_folder.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"
#include "tandem/base/text.h"
#include "tandem/launch/host_attempt.h"
#include "tandem/launch/logs/log_directory.h"
#include "tandem/launch/restarts.h"
#include "tandem/launch/status/status_server.h"
#include "tandem/launch/status/status_sockets.h"

namespace tandem {

namespace {

// Throws ConfigError if the limit of open files is too low. A rank needs two pipes, a
// connection to the store, and another pipe while it starts. With torchrun's services,
// it may also need two log files. kOurs is the number of other files of the launcher.
void check_open_files(const LaunchOptions& options) {
  constexpr int64_t kOurs = 32;
  const int64_t per_rank = options.torchrun ? 6 : 4;
  const int64_t remote =
      options.node_rank == 0 ? (options.nnodes - 1) * (options.nproc_per_node + 1) : 1;
  const int64_t wanted = kOurs + per_rank * options.nproc_per_node + remote;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
      limit.rlim_cur < static_cast<rlim_t>(wanted)) {
    throw ConfigError(fmt::format(
        "[launch] this process may open {} files, but {} ranks on this host need {}; "
        "raise ulimit -n",
        limit.rlim_cur, options.nproc_per_node, wanted));
  }
}

void check(const LaunchOptions& options) {
  constexpr int kMostRanks = 4096;
  if (options.command.empty()) {
    throw ConfigError("[launch] the program is missing; add it after the flags");
  }
  if (options.nproc_per_node < 1 || options.nproc_per_node > kMostRanks) {
    throw ConfigError(
        "[launch] " + counted(options.nproc_per_node, "rank") +
        " on this host, expected 1 to " + std::to_string(kMostRanks) +
        "; change --nproc");
  }
  if (options.nnodes < 1 || options.node_rank < 0 ||
      options.node_rank >= options.nnodes) {
    throw ConfigError(
        "[launch] the node rank is " + std::to_string(options.node_rank) + " of " +
        counted(options.nnodes, "host") +
        ", expected 0 to nnodes - 1; change --node-rank");
  }
  if (options.min_nnodes > options.nnodes) {
    throw ConfigError(fmt::format(
        "[launch] --nnodes is {}:{}, expected MIN:MAX with MIN at most MAX; change it",
        options.min_nnodes, options.nnodes));
  }
  if (options.nnodes > 1 && options.master_port == 0) {
    throw ConfigError(
        "[launch] several hosts need a fixed port; set --master-port, or use --nproc " +
        std::to_string(options.nnodes) + " instead of -n or --nnodes to start " +
        std::to_string(options.nnodes) + " ranks on this host");
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    throw ConfigError(
        "[launch] the port is " + std::to_string(options.master_port) +
        ", expected 1 to 65535, or 0 for a free one; change --master-port");
  }
  if (!(options.grace_seconds >= 0 && options.grace_seconds <= 1e6)) {
    throw ConfigError(
        "[launch] the grace period is " + fmt::format("{}", options.grace_seconds) +
        " seconds, expected 0 to 1000000; change --grace-seconds");
  }
  check_open_files(options);
  TANDEM_CHECK(
      options.local_rank_at <= options.command.size(), "--local-rank has no place");
  TANDEM_CHECK(
      !options.fork_server || options.local_rank_at == 0,
      "a fork server gives all ranks one command");
}

// Returns the listening sockets of the status server. Returns no sockets on hosts other
// than host 0. Throws the errors of listen_for_metrics().
std::vector<Socket> listen_for_status(const LaunchOptions& options) {
  std::vector<Socket> listeners;
  if (options.node_rank == 0 && options.metrics_port > 0) {
    listeners.push_back(
        listen_for_metrics(options.metrics_address, options.metrics_port));
  }
  if (options.node_rank == 0 && !options.out.empty()) {
    if (auto listener = listen_for_run(options.out)) {
      listeners.push_back(std::move(listener));
    }
  }
  return listeners;
}

// Waits before the next attempt. Throws Error if a signal stops the launcher.
void pause_before_restart(std::chrono::seconds delay) {
  const auto until = std::chrono::steady_clock::now() + delay;
  do {
    throw_if_stopped();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
        std::chrono::milliseconds(100), until - std::chrono::steady_clock::now()));
  } while (std::chrono::steady_clock::now() < until);
}

// Starts the ranks of attempt `next` or of a later one, and returns how they ended.
// Sets `next` to this attempt.
HostEnding run_attempt(
    const LaunchOptions& options, const TokenFile* token, Attempt& next,
    Restarts& restarts, HostChanges& changes, LogDirectory* logs,
    StatusServer& status) {
  next.restarts = restarts.count();
  next.excluded = changes.excluded();
  // The first wait for host 0 is before the supervisor blocks signals, because it may
  // be long.
  auto meeting = meet_first_node(options, token == nullptr ? "" : token->token(), next);
  if (meeting.end_code.value_or(0) != 0 && next.number > 0) {
    return {
        *meeting.end_code == kExitStopped ? Cause::saved_and_stopped : Cause::own_error,
        *meeting.end_code,
        "[launch] host 0 ended the run before the ranks started again"};
  }
  if (meeting.end_code) {
    log_info("[launch] the run ended before this host could take part");
    return {};
  }
  next = meeting.attempt;
  restarts.set_count(next.restarts);
  HostAttempt attempt(
      options, token, std::move(meeting), restarts, changes, logs, status);
  return attempt.run();
}

// Starts the ranks until they must not start again. Returns how they ended.
HostEnding run_attempts(
    LaunchOptions options, const TokenFile* token, LogDirectory* logs) {
  // The ranks of a later attempt cannot see that the folder is another one.
  HeldFolder folder(options.node_rank == 0 ? options.out : "");
  folder.hold();
  options.while_running = [&folder, before = std::move(options.while_running)] {
    folder.hold();
    if (before) {
      before();
    }
  };
  Restarts restarts(options.max_restarts);
  HostChanges changes;
  // Serves until the run ends, so the port stays open while the ranks start again.
  StatusServer status(listen_for_status(options));
  Attempt next;
  HostEnding last;
  try {
    for (;; ++next.number) {
      status.publish(status_now(options.world_size(), restarts.count(), {}));
      if (next.number > 0 && options.node_rank == 0) {
        pause_before_restart(restarts.delay());
      }
      next.lost_host_0 = last.lost_host_0;
      last = run_attempt(options, token, next, restarts, changes, logs, status);
      if (!last.again) {
        return last;
      }
      log_warning(
          last.reason + (last.lost_host_0 ? "; trying to join the next start" : ""));
      folder.check();
    }
  } catch (const CommError&) {
    if (last.lost_host_0) {
      return last;
    }
    throw;
  } catch (const Error& error) {
    // The run can continue from the checkpoints of earlier attempts.
    const bool can_continue = next.number > 0 || options.stopped_code == kExitStopped;
    if (can_continue && pending_stop_signal() != 0) {
      throw StoppedError(error.what());
    }
    throw;
  }
}

}  // namespace

Variables rank_variables(int nproc, int64_t threads) {
  Variables variables;
  if (threads > 0) {
    for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
      variables.emplace_back(name, std::to_string(threads));
    }
  }
  const auto share = std::to_string(std::max(1, usable_cpus() / std::max(1, nproc)));
  const Variables defaults = {
      {"OMP_NUM_THREADS", share},
      {"OPENBLAS_NUM_THREADS", get_env("OMP_NUM_THREADS").value_or(share)},
      // Limits the time for which waiting OpenMP threads spin to microseconds; the
      // default is milliseconds. With the default, a step takes twice as long as on one
      // thread if another program uses one of the CPUs.
      {get_env("OMP_WAIT_POLICY") ? "OMP_WAIT_POLICY" : "GOMP_SPINCOUNT", "5000"},
      {"GLOG_minloglevel", "2"},
      // tandem prints errors itself, in one line.
      {"TORCH_CPP_LOG_LEVEL", "FATAL"},
      {"UCX_HANDLE_ERRORS", "none"},
      {"UCX_DEBUG_SIGNO", "0"},
  };
  for (const auto& entry : defaults) {
    const bool is_set = std::any_of(
        variables.begin(), variables.end(),
        [&](const auto& variable) { return variable.first == entry.first; });
    if (!is_set && !get_env(entry.first)) {
      variables.push_back(entry);
    }
  }
  return variables;
}

void launch_ranks(const LaunchOptions& options) {
  reserve_standard_streams();
  check(options);
  std::optional<TokenFile> file;
  if (options.nnodes > 1) {
    file.emplace(options.token, is_loopback(options.master_addr));
  }
  // Makes the launcher, instead of init, the parent of orphaned grandchildren.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::optional<LogDirectory> logs;
  if (options.torchrun) {
    logs.emplace(options.torchrun->logs, options.run);
  }
  const auto ending =
      run_attempts(options, file ? &*file : nullptr, logs ? &*logs : nullptr);
  if (ending.code != 0) {
    throw_for_exit_code(ending.code, ending.reason);
  }
}

}  // namespace tandem
