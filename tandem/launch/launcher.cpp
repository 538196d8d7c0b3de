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
#include "tandem/base/log.h"
#include "tandem/base/memory.h"
#include "tandem/base/output.h"
#include "tandem/base/program_clock.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"
#include "tandem/base/store/socket.h"
#include "tandem/launch/elastic_variables.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/failure_summary.h"
#include "tandem/launch/fork_server.h"
#include "tandem/launch/host_ending.h"
#include "tandem/launch/host_watch.h"
#include "tandem/launch/log_directory.h"
#include "tandem/launch/rank_status.h"
#include "tandem/launch/rendezvous.h"
#include "tandem/launch/restarts.h"
#include "tandem/launch/status_exchange.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

namespace {

// Throws ConfigError if the limit of open files is too low. A rank needs two pipes, a
// connection to the store, and another pipe while it starts. With torchrun's services,
// it may also need two log files. kOurs is the number of other files of the launcher.
void check_open_files(const LaunchOptions& options) {
  constexpr int64_t kOurs = 20;
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
        "[launch] " + std::to_string(options.nproc_per_node) +
        " ranks on this host, expected 1 to " + std::to_string(kMostRanks) +
        "; change --nproc");
  }
  if (options.nnodes < 1 || options.node_rank < 0 ||
      options.node_rank >= options.nnodes) {
    throw ConfigError(
        "[launch] the node rank is " + std::to_string(options.node_rank) + " of " +
        std::to_string(options.nnodes) +
        " hosts, expected 0 to nnodes - 1; change --node-rank");
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

// Returns a free port for programs that open their own store. Another process may open
// the port before the program does.
int free_port(const std::string& host) {
  const auto listener = listen_at("tcp:" + host + ":0", {}, ListenOn::all);
  return std::stoi(listener.address.substr(listener.address.rfind(':') + 1));
}

ProcessOptions rank_process(
    const LaunchOptions& options, const RankEnv& env, const Variables& defaults,
    const LogDirectory* logs) {
  ProcessOptions process;
  process.command = options.command;
  if (options.local_rank_at > 0) {
    process.command.insert(
        process.command.begin() + static_cast<std::ptrdiff_t>(options.local_rank_at),
        "--local-rank=" + std::to_string(env.local_rank));
  }
  process.variables = to_variables(env);
  const auto add = [&](const Variables& more) {
    process.variables.insert(process.variables.end(), more.begin(), more.end());
  };
  add({program_start_variable()});
  if (logs != nullptr) {
    add(elastic_variables(*options.torchrun, env));
    add({{"TORCHELASTIC_ERROR_FILE", logs->error_file(env.local_rank)}});
  }
  add(defaults);
  add(options.variables);
  process.pipe_output = !(options.first_rank_owns_terminal && env.local_rank == 0);
  return process;
}

std::vector<Process> start(
    const LaunchOptions& options, const std::vector<ProcessOptions>& ranks) {
  if (options.fork_server && ranks.size() > 1) {
    return fork_ranks(ranks);
  }
  std::vector<Process> processes;
  for (const auto& rank : ranks) {
    processes.emplace_back(rank);
  }
  return processes;
}

RankEnv common_env(const LaunchOptions& options, const Rendezvous& rendezvous) {
  RankEnv env;
  env.world_size = options.nnodes * options.nproc_per_node;
  env.local_world_size = options.nproc_per_node;
  env.node_rank = options.node_rank;
  env.master_addr = options.master_addr;
  env.master_port =
      options.master_port > 0 ? options.master_port : free_port(options.master_addr);
  env.store = rendezvous.address;
  env.run = options.run;
  return env;
}

// Memory and files through which the ranks of this host report to the launcher.
struct Reports {
  FailureFile failures;
  StatusBoard board;

  explicit Reports(const LaunchOptions& options)
      : board(options.node_rank * options.nproc_per_node, options.nproc_per_node) {}

  Variables variables() const {
    auto variables = failures.variables();
    const auto more = board.variables();
    variables.insert(variables.end(), more.begin(), more.end());
    return variables;
  }
};

int first_rank_of(const LaunchOptions& options) {
  return options.node_rank * options.nproc_per_node;
}

// Starts this host's ranks under the supervisor. All ranks get `variables`. `logs`:
// null for no log files. Throws as Process and fork_ranks().
void start_ranks(
    const LaunchOptions& options, const Rendezvous& rendezvous,
    const Variables& variables, const LogDirectory* logs, Supervisor& supervisor) {
  auto defaults = rank_variables(options.nproc_per_node, options.threads);
  defaults.insert(defaults.end(), variables.begin(), variables.end());
  const int first_rank = first_rank_of(options);
  RankEnv env = common_env(options, rendezvous);
  std::vector<ProcessOptions> ranks;
  for (int local = 0; local < options.nproc_per_node; ++local) {
    env.local_rank = local;
    env.rank = first_rank + local;
    ranks.push_back(rank_process(options, env, defaults, logs));
  }
  int rank = first_rank;
  for (auto& process : start(options, ranks)) {
    const int local_rank = rank - first_rank;
    const std::string prefix = "[rank " + std::to_string(rank) + "] ";
    StreamOptions output;
    StreamOptions errors;
    if (logs != nullptr) {
      output = logs->output_of(local_rank);
      errors = logs->errors_of(local_rank);
    }
    output.prefix = options.prefix_output ? prefix : "";
    errors.prefix = prefix;
    supervisor.add(rank, std::move(process), std::move(output), std::move(errors));
    ++rank;
  }
}

HostWatch::Options watch_options(
    const LaunchOptions& options, const Rendezvous& rendezvous,
    const std::string& token) {
  HostWatch::Options watch;
  watch.node = options.node_rank;
  watch.nnodes = options.nnodes;
  watch.nproc = options.nproc_per_node;
  watch.master_addr = options.master_addr;
  watch.store = rendezvous.address;
  watch.token = token;
  watch.greeting = launcher_greeting(options);
  if (options.timeout_seconds > 0) {
    watch.timeout = std::min(watch.timeout, options.timeout());
  }
  return watch;
}

// Returns the number of steps that the ranks of a host have made, -1 if it is unknown.
int64_t last_step(const StatusBoard& board) {
  int64_t step = -1;
  for (const auto& status : board.read()) {
    step = std::max(step, status.step);
  }
  return step;
}

// Starts the ranks of this host once, and returns how the ranks of all hosts ended.
// Host 0 decides whether they start again. `logs`: null for no log files.
HostEnding run_attempt(
    const LaunchOptions& options, const std::optional<TokenFile>& file, Meeting meeting,
    Restarts& restarts, LogDirectory* logs) {
  const std::string token = file ? file->token() : "";
  Supervisor supervisor(
      options.grace_seconds, options.stop_grace_seconds < 0
                                 ? options.grace_seconds
                                 : options.stop_grace_seconds);
  const Rendezvous rendezvous(options, token, std::move(meeting));
  const int64_t memory_kills = num_memory_kills();
  const Reports reports(options);
  auto variables = reports.variables();
  const auto more = restarts.variables();
  variables.insert(variables.end(), more.begin(), more.end());
  if (file) {
    variables.push_back(token_variable(file->path()));
  }
  std::optional<HostEnding> failed_start;
  try {
    if (logs != nullptr) {
      logs->begin_attempt(restarts.count(), options.nproc_per_node);
    }
    start_ranks(options, rendezvous, variables, logs, supervisor);
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    failed_start = HostEnding{Cause::own_error, 1, error.what()};
  }
  StatusExchange exchange(
      reports.board, options.node_rank, options.nnodes, options.stall_seconds);
  auto watched = watch_options(options, rendezvous, token);
  watched.exchange = [&](StoreClient& client) { exchange.tell(client); };
  HostWatch watch(watched, rendezvous.server.get(), rendezvous.client.get());
  supervisor.ask([&](bool failed) {
    if (options.node_rank == 0) {
      exchange.collect(rendezvous.server.get());
    }
    return watch.must_end(failed);
  });
  const auto endings = supervisor.run();
  if (supervisor.stop_signal() != 0) {
    watch.hurry();
  }
  const Circumstances when{
      supervisor.stop_signal(), num_memory_kills() > memory_kills, options.nnodes > 1,
      !watch.lost().empty()};
  const auto stopped = [&] { return supervisor.told_to_stop(); };
  auto errors = reports.failures.read();
  if (logs != nullptr) {
    complete_error_files(*logs, first_rank_of(options), endings, errors);
  }
  const auto mine = failed_start.value_or(ending_of_host(endings, errors, when));
  const auto must_stop = [&] {
    return supervisor.stop_signal() != 0 || pending_stop_signal() != 0;
  };
  auto ending = watch.agree(mine, stopped, [&](HostEnding& verdict) {
    if (!must_stop()) {
      restarts.decide(verdict, last_step(reports.board));
    }
  });
  ending.again = ending.again && !must_stop();
  // Keeps the store open until the other launchers have read the reason for the end of
  // the run.
  if (rendezvous.server && options.nnodes > 1) {
    rendezvous.server->linger_if_refused();
  }
  supervisor.finish_output();
  const bool ends_here = !ending.again && !failed_start && needs_summary(mine, when) &&
                         ending.reason.rfind(mine.reason, 0) == 0;
  if (logs != nullptr && ends_here) {
    const auto* first = first_failure(endings, errors, when);
    summarize_failure(*first, first_rank_of(options), supervisor, *logs);
  }
  return ending;
}

// Waits before the next attempt. Throws Error if a signal stops the launcher.
void pause_before_restart(std::chrono::seconds delay) {
  const auto until = std::chrono::steady_clock::now() + delay;
  do {
    if (const int number = pending_stop_signal(); number != 0) {
      throw Error(fmt::format("stopped by SIG{}", sigabbrev_np(number)));
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
        std::chrono::milliseconds(100), until - std::chrono::steady_clock::now()));
  } while (std::chrono::steady_clock::now() < until);
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
  Restarts restarts(options.max_restarts);
  std::optional<LogDirectory> logs;
  if (options.torchrun) {
    logs.emplace(options.torchrun->logs, options.run);
  }
  for (Attempt next;; ++next.number) {
    next.restarts = restarts.count();
    // The first wait for host 0 is before the supervisor blocks signals, because it may
    // be long.
    auto meeting = meet_first_node(options, file ? file->token() : "", next);
    next = meeting.attempt;
    restarts.set_count(next.restarts);
    const auto ending = run_attempt(
        options, file, std::move(meeting), restarts, logs ? &*logs : nullptr);
    if (!ending.again) {
      if (ending.code != 0) {
        throw_for_exit_code(ending.code, ending.reason);
      }
      return;
    }
    log_warning(ending.reason);
    if (options.node_rank == 0) {
      pause_before_restart(restarts.delay());
    }
  }
}

}  // namespace tandem
