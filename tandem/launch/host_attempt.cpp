#include "tandem/launch/host_attempt.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/memory.h"
#include "tandem/base/program_clock.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"
#include "tandem/base/store/socket.h"
#include "tandem/base/text.h"
#include "tandem/launch/failure_summary.h"
#include "tandem/launch/fork_server.h"

namespace tandem {

namespace {

// Returns the GPU of a rank, as a value for CUDA_VISIBLE_DEVICES.
std::string own_gpu(int local_rank, const GetEnv& get) {
  const auto listed = get("CUDA_VISIBLE_DEVICES");
  if (!listed) {
    return std::to_string(local_rank);
  }
  const auto gpus = split(*listed, ',');
  if (gpus.size() <= static_cast<size_t>(local_rank)) {
    throw ConfigError(fmt::format(
        "[launch] CUDA_VISIBLE_DEVICES is '{}', expected a GPU for local rank {}, "
        "which "
        "--virtual-local-rank needs; lower --nproc-per-node, or list more GPUs",
        *listed, local_rank));
  }
  return gpus[static_cast<size_t>(local_rank)];
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
  add({program_start_variable(), status_slot_variable(env.local_rank)});
  if (logs != nullptr) {
    add(elastic_variables(*options.torchrun, env));
    add({{"TORCHELASTIC_ERROR_FILE", logs->error_file(env.local_rank)}});
  }
  add(defaults);
  add(options.variables);
  process.pipe_output = !(options.first_rank_owns_terminal && env.local_rank == 0);
  process.holds_signals = options.holds_signals;
  return process;
}

using LoaderCheck = std::function<void(pid_t loader)>;

std::vector<Process> start(
    const LaunchOptions& options, const std::vector<ProcessOptions>& ranks,
    const LoaderCheck& check) {
  if (options.fork_server && ranks.size() > 1) {
    return fork_ranks(ranks, check);
  }
  std::vector<Process> processes;
  for (const auto& rank : ranks) {
    processes.emplace_back(rank);
  }
  return processes;
}

RankEnv common_env(const LaunchOptions& options, const std::string& store) {
  RankEnv env;
  env.world_size = options.nnodes * options.nproc_per_node;
  env.local_world_size = options.nproc_per_node;
  env.node_rank = options.node_rank;
  env.master_addr = options.master_addr;
  env.master_port =
      options.master_port > 0 ? options.master_port : free_port(options.master_addr);
  env.store = store;
  env.run = options.run;
  return env;
}

int first_rank_of(const LaunchOptions& options) {
  return options.node_rank * options.nproc_per_node;
}

// Returns the options of each rank's output and standard error.
std::vector<std::pair<StreamOptions, StreamOptions>> streams_of(
    const LaunchOptions& options, const LogDirectory* logs) {
  std::vector<std::pair<StreamOptions, StreamOptions>> streams;
  for (int local = 0; local < options.nproc_per_node; ++local) {
    auto& [output, errors] = streams.emplace_back();
    if (logs != nullptr) {
      output = logs->output_of(local);
      errors = logs->errors_of(local);
    }
    const std::string prefix =
        "[rank " + std::to_string(first_rank_of(options) + local) + "] ";
    output.prefix = options.prefix_output ? prefix : "";
    errors.prefix = prefix;
  }
  return streams;
}

// Starts this host's ranks under the supervisor. All ranks get `variables`. `logs` is
// null if there are no log files. Throws the errors of Process and fork_ranks().
void start_ranks(
    const LaunchOptions& options, const std::string& store, const Variables& variables,
    const LogDirectory* logs, Supervisor& supervisor, const LoaderCheck& check) {
  auto defaults = rank_variables(options.nproc_per_node, options.threads);
  defaults.insert(defaults.end(), variables.begin(), variables.end());
  const int first_rank = first_rank_of(options);
  RankEnv env = common_env(options, store);
  std::vector<ProcessOptions> ranks;
  for (int local = 0; local < options.nproc_per_node; ++local) {
    env.local_rank = local;
    env.rank = first_rank + local;
    ranks.push_back(rank_process(options, env, defaults, logs));
  }
  // Opens log files before the ranks start, because that can fail.
  auto streams = streams_of(options, logs);
  int rank = first_rank;
  for (auto& process : start(options, ranks, check)) {
    auto& [output, errors] = streams[static_cast<size_t>(rank - first_rank)];
    supervisor.add(rank, std::move(process), std::move(output), std::move(errors));
    ++rank;
  }
}

HostWatch::Options watch_options(
    const LaunchOptions& options, const Rendezvous& rendezvous,
    const std::string& token) {
  HostWatch::Options watch;
  watch.node = options.node_rank;
  watch.members = rendezvous.attempt.members;
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

LinkWatch::Store store_of(StoreClient& client) {
  return {
      [&client](const std::string& key) {
        return client.has({key}) ? std::optional(client.get(key, Milliseconds(1'000)))
                                 : std::nullopt;
      },
      [&client](const auto& key, const auto& value) { client.set(key, value); }};
}

LinkWatch::Store store_of(StoreServer& server) {
  return {
      [&server](const std::string& key) { return server.get(key); },
      [&server](const auto& key, const auto& value) { server.set(key, value); }};
}

double stop_grace(const LaunchOptions& options) {
  return options.stop_grace_seconds < 0 ? options.grace_seconds
                                        : options.stop_grace_seconds;
}

// Returns the options of an attempt with some hosts of the run.
LaunchOptions with_members(LaunchOptions options, const std::vector<int>& members) {
  const auto own = std::find(members.begin(), members.end(), options.node_rank);
  options.node_rank = static_cast<int>(own - members.begin());
  options.nnodes = static_cast<int>(members.size());
  return options;
}

}  // namespace

Variables elastic_variables(
    const TorchrunOptions& options, const RankEnv& env, const GetEnv& get) {
  Variables variables = {
      {"GROUP_WORLD_SIZE", std::to_string(env.world_size / env.local_world_size)},
      {"ROLE_NAME", options.role},
      {"ROLE_RANK", std::to_string(env.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(env.world_size)},
      {"TORCHELASTIC_RUN_ID", env.run.empty() ? "none" : env.run},
      // No agent serves LibTorch's store at MASTER_PORT, so rank 0 has to.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
  if (options.virtual_local_rank) {
    variables.emplace_back("LOCAL_RANK", "0");
    variables.emplace_back("CUDA_VISIBLE_DEVICES", own_gpu(env.local_rank, get));
  }
  return variables;
}

HostAttempt::HostAttempt(
    const LaunchOptions& options, const TokenFile* token, Meeting meeting,
    Restarts& restarts, HostChanges& changes, LogDirectory* logs, StatusServer& status)
    : options_(options),
      token_(token),
      restarts_(restarts),
      changes_(changes),
      logs_(logs),
      status_(status),
      memory_kills_(num_memory_kills()),
      // Ranks that end because hosts have joined need time to save.
      supervisor_(
          options.is_elastic() ? stop_grace(options) : options.grace_seconds,
          stop_grace(options)),
      rendezvous_(options, token == nullptr ? "" : token->token(), std::move(meeting)),
      here_(with_members(options, rendezvous_.attempt.members)),
      board_(first_rank_of(here_), options.nproc_per_node),
      exchange_(board_, here_.node_rank, here_.nnodes, options.stall_seconds),
      links_(
          board_, options.node_rank, rendezvous_.attempt.members, options.master_addr) {
}

std::optional<HostEnding> HostAttempt::start() {
  Variables variables = failures_.variables();
  for (const auto& more : {board_.variables(), restarts_.variables()}) {
    variables.insert(variables.end(), more.begin(), more.end());
  }
  variables.push_back(attempt_variable(rendezvous_.attempt.number));
  if (token_ != nullptr) {
    variables.push_back(token_variable(token_->path()));
  }
  try {
    if (logs_ != nullptr) {
      logs_->begin_attempt(rendezvous_.attempt.number, options_.nproc_per_node);
    }
    start_ranks(
        here_, rendezvous_.address, variables, logs_, supervisor_,
        [this](pid_t loader) { check_loader(loader); });
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    if (stop_signal() != 0 && !leaves()) {
      return stopped_early();
    }
    const bool ours = leaves() || over_while_loading_;
    return HostEnding{ours ? Cause::stopped_by_us : Cause::own_error, 1, error.what()};
  }
  return std::nullopt;
}

void HostAttempt::check_loader(pid_t loader) {
  throw_if_stopped();
  over_while_loading_ = must_end(false);
  if (over_while_loading_) {
    throw Error("[launch] the run ended before this host loaded its program");
  }
  const double timeout = options_.timeout_seconds;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began_;
  if (timeout > 0 && time.count() > timeout) {
    const int first = first_rank_of(here_);
    throw Error(fmt::format(
        "[launch] ranks {} to {} on {} have not started within {} s, because process "
        "{}, which loads '{}', {}; continue the process, or raise --timeout-seconds",
        first, first + here_.nproc_per_node - 1, host_name(), timeout, loader,
        options_.command[0], describe(halt_of(loader))));
  }
}

HostEnding HostAttempt::stopped_early() const {
  const auto name = fmt::format("stopped by SIG{}", sigabbrev_np(stop_signal()));
  if (options_.stopped_code != kExitStopped) {
    return {Cause::own_error, options_.stopped_code, name};
  }
  return {
      Cause::saved_and_stopped, kExitStopped,
      "[launch] " + name + " before the first step; continue with --resume auto"};
}

HostEnding HostAttempt::run() {
  auto watched =
      watch_options(options_, rendezvous_, token_ == nullptr ? "" : token_->token());
  watched.exchange = [this](StoreClient& client) {
    exchange_.tell(client);
    links_.look(store_of(client));
  };
  watch_.emplace(watched, rendezvous_.server.get(), rendezvous_.client.get());
  const auto failed_start = start();
  const auto endings =
      supervisor_.run([this](bool failed) { return must_end(failed); });
  if (supervisor_.stop_signal() != 0) {
    watch_->hurry();
  }
  const Circumstances when{
      supervisor_.stop_signal(), num_memory_kills() > memory_kills_, here_.nnodes > 1,
      !watch_->lost().empty()};
  auto errors = failures_.read();
  const bool have_reported = !errors.empty();
  add_printed_errors(supervisor_, endings, errors);
  const bool have_written =
      logs_ != nullptr &&
      complete_error_files(*logs_, first_rank_of(here_), endings, errors);
  auto mine = failed_start.value_or(ending_of_host(endings, errors, when));
  const bool nothing_lost =
      mine.cause > Cause::none && mine.cause < Cause::lost && !have_made_step();
  if (when.stop_signal != 0 && nothing_lost && options_.stopped_code == kExitStopped) {
    mine = stopped_early();
  }
  const auto broken = links_.broken();
  if (!broken.empty() && when.stop_signal == 0 && mine.cause <= Cause::lost) {
    mine = {Cause::lost, 1, broken};
  }
  mine.leaves = leaves();
  const auto ending = finish(mine);
  const bool ends_here = !ending.again && !failed_start &&
                         needs_summary(mine, when, have_reported) &&
                         ending.reason.rfind(mine.reason, 0) == 0;
  if (logs_ != nullptr && ends_here) {
    const auto* first = first_failure(endings, errors, when);
    const auto* report = report_of(first->rank, errors);
    if (have_written) {
      logs_->keep();
    }
    summarize_failure(
        *first, first_rank_of(here_), report == nullptr ? "" : report->message,
        supervisor_, *logs_);
  }
  return ending;
}

bool HostAttempt::must_end(bool failed) {
  if (options_.while_running) {
    options_.while_running();
  }
  if (is_first()) {
    if (options_.nnodes > 1 && options_.restarts()) {
      rendezvous_.compare_hosts(options_);
    }
    if (auto ranks = exchange_.collect(rendezvous_.server.get())) {
      status_.publish(
          status_now(here_.world_size(), restarts_.count(), std::move(*ranks)));
    }
    if (!failed && options_.is_elastic() && admitted_.empty()) {
      admit_newcomers();
    }
  }
  if (is_first() && here_.nnodes > 1) {
    links_.look(store_of(*rendezvous_.server));
  }
  const bool halted = options_.timeout_seconds > 0 &&
                      supervisor_.has_halted_rank(options_.timeout_seconds);
  const bool changes =
      !admitted_.empty() || leaves() || halted || !links_.broken().empty();
  return watch_->must_end(failed || changes) || changes;
}

// Returns whether all ranks of this host have made a step. Returns true if their
// program does not report steps.
bool HostAttempt::have_made_step() const {
  const auto statuses = board_.read();
  return std::all_of(statuses.begin(), statuses.end(), [this](const auto& status) {
    return status.step >= 0 || (status.pid == 0 && !options_.fork_server);
  });
}

// Ends the ranks if hosts have joined. Ranks of tandem must have made a step, because
// they cannot save a checkpoint earlier.
void HostAttempt::admit_newcomers() {
  const auto newcomers = rendezvous_.newcomers();
  if (!newcomers.empty() && have_made_step()) {
    admitted_ = newcomers;
  }
}

int HostAttempt::stop_signal() const {
  const int handled = supervisor_.stop_signal();
  return handled != 0 ? handled : pending_stop_signal();
}

bool HostAttempt::leaves() const {
  return options_.is_elastic() && !is_first() && stop_signal() != 0;
}

// Host 0 decides whether the ranks start again.
void HostAttempt::decide(HostEnding& verdict) {
  if (stop_signal() != 0 || verdict.code == 0) {
    return;
  }
  const bool changed =
      options_.is_elastic() &&
      (!admitted_.empty() || !watch_->leaving_hosts().empty() || watch_->lost_host());
  // A rank can also fail while it saves because of a change.
  const bool failed = verdict.cause > Cause::saved_and_stopped;
  const std::string exclusions = options_.is_elastic() ? exclude_hosts() : "";
  if (failed || !changed) {
    const auto status = status_now(here_.world_size(), 0, board_.read());
    const auto* furthest = status.furthest();
    restarts_.decide(verdict, furthest == nullptr ? -1 : furthest->step);
  } else {
    start_after_change(verdict);
  }
  verdict.reason += exclusions;
  const int num_left = options_.nnodes - static_cast<int>(changes_.excluded().size());
  if (verdict.again && num_left < options_.min_nnodes) {
    verdict.again = false;
    verdict.code = 1;
    verdict.reason += fmt::format(
        "; {} of {} hosts are left, expected at least {}", num_left, options_.nnodes,
        options_.min_nnodes);
  }
}

// Excludes hosts that cause starts without a step. Returns a text about these hosts.
std::string HostAttempt::exclude_hosts() {
  auto gone = watch_->leaving_hosts();
  if (const auto lost = watch_->lost_host()) {
    gone.push_back(*lost);
  }
  std::string text;
  for (const int node : changes_.note(
           {rendezvous_.attempt.members, gone, admitted_, have_made_step()})) {
    text += fmt::format(
        "; host {} is excluded, because it caused {} starts in succession without a "
        "step",
        node, HostChanges::kMostIdleStarts);
  }
  return text;
}

// Starts the ranks again because hosts have joined, left or are lost.
void HostAttempt::start_after_change(HostEnding& verdict) const {
  verdict.again = true;
  if (watch_->lost_host()) {
    verdict.reason += "; the ranks start again on the other hosts";
  } else if (const auto& leaving = watch_->leaving_hosts(); !leaving.empty()) {
    verdict.reason = "[launch] " + with_numbers("host", leaving) +
                     " left, so the ranks start again on the other hosts";
  } else {
    verdict.reason = "[launch] " + with_numbers("host", admitted_) +
                     " joined, so the ranks start again on all hosts";
  }
  // A warning is printed only once, so its text needs the number of the start.
  verdict.reason += fmt::format(" (start {})", rendezvous_.attempt.number + 2);
}

// Agrees with the other launchers on the end of this attempt.
HostEnding HostAttempt::finish(const HostEnding& mine) {
  auto ending = watch_->agree(
      mine, [this] { return supervisor_.told_to_stop(); },
      [this](HostEnding& verdict) { decide(verdict); });
  // Keeps the store open until the other launchers have read the reason for the end of
  // the run.
  if (rendezvous_.server && options_.nnodes > 1) {
    rendezvous_.server->linger_if_refused();
  }
  // Host 0 may have lost only the connection to this host.
  ending.again = ending.again || (ending.lost_host_0 && options_.restarts());
  supervisor_.finish_output();
  // Checked after finish_output(), which also reads signals.
  const int signal = stop_signal();
  const bool cancels = signal != 0 && ending.again;
  if (cancels) {
    ending.again = false;
    if (leaves()) {
      ending.code = kExitStopped;
      ending.reason = fmt::format(
          "[launch] stopped by SIG{}; host {} has left the run", sigabbrev_np(signal),
          options_.node_rank);
    }
  }
  if (is_first() && options_.nnodes > 1 && cancels) {
    rendezvous_.cancel_next_attempt();
  } else if (is_first() && options_.is_elastic() && !ending.again) {
    rendezvous_.end_run(ending.code);
  }
  return ending;
}

}  // namespace tandem
