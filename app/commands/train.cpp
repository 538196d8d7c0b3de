#include <fmt/core.h>

#include <memory>
#include <optional>

#include "app/command_line.h"
#include "app/flag_names.h"
#include "app/host_identity.h"
#include "app/run_command_line.h"
#include "app/torchrun_variables.h"
#include "app/train_flags.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/named_datasets.h"
#include "tandem/data/prepared_data.h"
#include "tandem/launch/launcher.h"
#include "tandem/launch/mpirun.h"

namespace tandem::app {

namespace {

// Throws ConfigError if --nproc or --nnodes contradicts another launcher's number of
// ranks. The recipe's nproc has no effect under another launcher, so it is not checked.
void check_world(
    const RunConfig& config, const RankEnv& env, const Arguments& arguments) {
  if (!has_flag(arguments, {"--nproc", "--nnodes"})) {
    return;
  }
  const int asked = config.num_ranks_here() * static_cast<int>(config.ranks.nnodes);
  if (asked > 1 && asked != env.world_size) {
    throw ConfigError(fmt::format(
        "[launch] --nproc and --nnodes request {} ranks, but {} is {}; leave out "
        "--nproc under a launcher, or {}",
        asked, size_variable(env), env.world_size,
        env.source == "env" ? "unset RANK and WORLD_SIZE"
                            : "let it start one process, which starts the ranks"));
  }
}

// Returns the rank that another launcher gave this process. If srun or mpirun started a
// single process and --nproc is given, this process starts the ranks itself.
std::optional<RankEnv> rank_of_launcher(const Arguments& arguments) {
  auto env = read_rank_env();
  if (env && env->source != "env" && env->world_size == 1 &&
      has_flag(arguments, {"--nproc"})) {
    forget_launcher(*env);
    env.reset();
  }
  return env;
}

[[noreturn]] void ask_for_mpirun(int ranks, const Arguments& arguments) {
  std::vector<std::string> command = {executable_path(), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  throw ConfigError(
      "[launch] mpirun must start the ranks of this run; run: " +
      shell_line(mpirun_command(ranks, command)));
}

// Runs `tandem data fetch` for --fetch if files of a named data set are missing. The
// output goes to standard error, because standard output is for the lines of the
// recipe. `ranks_here` processes of this host call this function: one process fetches,
// and the others wait for at most `timeout`.
void fetch_missing(
    const std::string& name, int ranks_here, std::chrono::milliseconds timeout) {
  if (!dataset_is_missing(name)) {
    return;
  }
  std::optional<FileLock> lock;
  if (ranks_here > 1) {
    lock.emplace(cache_directory() + "/fetch.lock", Deadline(timeout));
    if (!dataset_is_missing(name)) {
      return;
    }
  }
  ProcessOptions options;
  options.command = {"/bin/sh",     "-c",   "exec \"$@\" >&2", "sh",
                     worker_path(), "data", "fetch",           name};
  options.variables = rank_variables(1);
  if (!Process(options).wait().ok()) {
    throw DataError(
        "[data] " + name +
        " is not fetched (the previous line has the reason); choose another --data");
  }
}

void warn_of_flags_without_effect(const RunConfig& config) {
  if (config.ranks.max_restarts > 0) {
    log_warning(
        "[launch] --max-restarts has no effect, because another launcher started the "
        "ranks; use the restarts of that launcher");
  }
  if (config.ranks.metrics_port > 0) {
    log_warning(
        "[launch] no metrics are served, because another launcher started the ranks; "
        "leave out --metrics-port");
  }
}

// Replaces this process with the worker, as a rank of another launcher.
[[noreturn]] void become_rank(
    const RunConfig& config, const RankEnv& env, const Arguments& arguments) {
  check_world(config, env, arguments);
  if (env.rank == 0) {
    warn_of_flags_without_effect(config);
  }
  hold_signals();
  exec_program(
      worker_command({"train"}, arguments, config.exec.device),
      rank_variables(env.local_world_size, config.exec.threads));
}

// Returns the number of processes that train on this host.
int num_processes_here(const RunConfig& config) {
  return config.ranks.kind == RankKind::thread ? 1 : config.num_ranks_here();
}

// Returns whether the ranks are in one process.
bool is_one_process(const RunConfig& config) {
  return num_processes_here(config) == 1 && config.ranks.nnodes == 1;
}

// Returns whether this process must remain as the launcher while the ranks train.
bool needs_launcher(const RunConfig& config) {
  return !is_one_process(config) || config.ranks.max_restarts > 0 ||
         config.ranks.metrics_port > 0;
}

// Returns whether the launchers compare the hosts of the run before a host joins.
bool compares_hosts(const RunConfig& config) {
  return config.ranks.nnodes > 1 &&
         (config.ranks.max_restarts > 0 || config.ranks.min_nnodes > 0);
}

// Starts to read the data for the workers. Returns null if the ranks are processes and
// rank 0 scatters the data, because only rank 0 then reads the files.
std::unique_ptr<DataReader> read_for_workers(const RunConfig& config) {
  return is_one_process(config) || config.data.share != Share::scatter
             ? std::make_unique<DataReader>(
                   DataRequest(config), config.comm.timeout(), compares_hosts(config))
             : nullptr;
}

[[noreturn]] void become_only_worker(
    const RunConfig& config, const Arguments& arguments, Variables variables) {
  const auto more = rank_variables(config.num_ranks_here(), config.exec.threads);
  variables.insert(variables.end(), more.begin(), more.end());
  hold_signals();
  exec_program(worker_command({"train"}, arguments, config.exec.device), variables);
}

// Returns the exit code of a run that a signal stops before its first step.
int stopped_code(const RunConfig& config) {
  return config.output.out.empty() || config.output.dry_run ? 1 : kExitStopped;
}

LaunchOptions launch_options(const RunConfig& config) {
  LaunchOptions options;
  options.nproc_per_node = num_processes_here(config);
  options.ranks_per_process = config.num_ranks_here() / options.nproc_per_node;
  options.nnodes = static_cast<int>(config.ranks.nnodes);
  options.min_nnodes = static_cast<int>(config.ranks.min_nnodes);
  options.node_rank = static_cast<int>(config.ranks.node_rank);
  options.master_addr = config.ranks.master_addr;
  options.master_port = static_cast<int>(config.ranks.master_port);
  options.backend = name_of(config.comm.backend);
  options.listen_all = config.comm.listen_all;
  options.token = {config.comm.token_file, config.comm.insecure};
  options.timeout_seconds = config.comm.timeout_seconds;
  options.stop_grace_seconds = config.ranks.grace_seconds;
  options.max_restarts = static_cast<int>(config.ranks.max_restarts);
  options.stall_seconds = config.ranks.stall_warning;
  options.metrics_address = config.ranks.metrics_address;
  options.metrics_port = static_cast<int>(config.ranks.metrics_port);
  options.out = config.output.out;
  options.threads = config.exec.threads;
  options.fork_server = true;
  options.holds_signals = true;
  options.stopped_code = stopped_code(config);
  options.first_rank_owns_terminal = true;
  // If all ranks report, the template prints the rank.
  options.prefix_output = config.output.log_ranks == LogRanks::first;
  return options;
}

// Warns if there are more than two ranks per CPU, which is rarely intended.
void warn_of_ranks(const RunConfig& config) {
  const int here = config.num_ranks_here();
  if (here > 2 * usable_cpus()) {
    log_warning(fmt::format(
        "[launch] each rank is {} times as slow as alone, because {} ranks share {} "
        "CPUs; lower --nproc",
        here / usable_cpus(), here, usable_cpus()));
  }
}

// Starts the ranks of this host. Replaces this process with the worker if that needs no
// launcher.
void train_here(
    const RunConfig& config, const Arguments& arguments, const TrainExtras& extras) {
  if (config.needs_mpirun()) {
    ask_for_mpirun(config.num_ranks_here(), arguments);
  }
  warn_of_ranks(config);
  const auto reader = read_for_workers(config);
  const auto variables = reader ? reader->variables() : Variables();
  if (!needs_launcher(config)) {
    become_only_worker(config, arguments, variables);
  }
  LaunchOptions options = launch_options(config);
  options.command = worker_command({"train"}, arguments, config.exec.device);
  options.variables = variables;
  if (reader) {
    options.while_running = [&] { reader->reap(); };
  }
  HostIdentity identity(arguments, config, extras.earlier, reader.get());
  if (compares_hosts(config)) {
    options.identity = [&] { return identity.text(); };
    options.check_identity = [&](const auto& host_0) { return identity.check(host_0); };
  }
  launch_ranks(options);
}

void train_or_launch(const Arguments& given) {
  TorchrunVariables variables;
  const auto env = rank_of_launcher(given);
  const Arguments arguments =
      env ? given : variables.add_flags(given, TorchrunVariables::Command::train);
  TrainExtras extras;
  const RunConfig config = parse_train_arguments(arguments, &extras);
  // The launcher of a rank reports why it stops the rank.
  if (const int code = stopped_code(config); !env) {
    exit_on_signals(
        code, code == kExitStopped ? "tandem: [launch] stopped by a signal before the "
                                     "first step; continue with --resume auto"
                                   : "tandem: error: [launch] stopped by a signal "
                                     "before the first step; run the command again");
  }
  variables.announce(launch_options(config));
  find_device(extras, [&] { return worker_path(config.exec.device); });
  ignore_closed_readers();
  const bool first = env ? env->rank == 0 : config.ranks.node_rank == 0;
  if (first && !extras.kept.empty()) {
    log_info("the run keeps its own settings, not the recipe's: " + extras.kept);
  }
  // If rank 0 scatters the data, only host 0 needs the files.
  const bool fetches = extras.fetch && (first || config.data.share != Share::scatter);
  if (env) {
    if (fetches) {
      fetch_missing(config.data.source, env->local_world_size, config.comm.timeout());
    }
    become_rank(config, *env, arguments);
  }
  if (fetches && !config.needs_mpirun()) {
    fetch_missing(config.data.source, 1, config.comm.timeout());
  }
  train_here(config, arguments, extras);
}

}  // namespace

int run_train(const Arguments& arguments) {
  return run_as_rank([&] { train_or_launch(with_own_names(arguments)); });
}

}  // namespace tandem::app
