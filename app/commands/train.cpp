#include <algorithm>
#include <optional>

#include "app/command_line.h"
#include "app/fetch_missing.h"
#include "app/flag_names.h"
#include "app/run_as_rank.h"
#include "app/train_flags.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/standard_streams.h"
#include "tandem/data/prepared_data.h"
#include "tandem/launch/launcher.h"
#include "tandem/launch/mpirun.h"

namespace tandem::app {

namespace {

std::vector<std::string> worker_command(const Arguments& arguments) {
  std::vector<std::string> command = {worker_path(), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

bool has_flag(const Arguments& arguments, const std::vector<std::string>& flags) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& text) {
    const auto name = text.substr(0, text.find('='));
    return std::find(flags.begin(), flags.end(), name) != flags.end();
  });
}

// A recipe's own nproc is for when tandem launches; a flag was meant for now.
void check_world(
    const RunConfig& config, const RankEnv& env, const Arguments& arguments) {
  if (!has_flag(arguments, {"--nproc", "--nnodes"})) {
    return;
  }
  const int asked = config.num_ranks_here() * static_cast<int>(config.ranks.nnodes);
  if (asked > 1 && asked != env.world_size) {
    throw ConfigError(
        "[launch] --nproc and --nnodes ask for " + std::to_string(asked) +
        " ranks, but WORLD_SIZE is " + std::to_string(env.world_size) +
        "; leave --nproc out under a launcher, or unset RANK and WORLD_SIZE");
  }
}

[[noreturn]] void ask_for_mpirun(int ranks, const Arguments& arguments) {
  std::vector<std::string> command = {executable_path(), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  throw ConfigError(
      "[launch] this run's ranks are for mpirun to start; run: " +
      shell_line(mpirun_command(ranks, command)));
}

int train_or_launch(const Arguments& arguments) {
  TrainExtras extras;
  const RunConfig config = parse_train_arguments(arguments, &extras);
  outlive_readers();
  const auto env = read_rank_env();
  const bool first = env ? env->rank == 0 : config.ranks.node_rank == 0;
  if (first && !extras.kept.empty()) {
    log_info("the run keeps its own settings, not the recipe's: " + extras.kept);
  }
  // Rank 0 alone reads what is scattered, and of several hosts only node 0 has it.
  const bool fetches = extras.fetch && (first || config.data.share != Share::scatter);
  if (env) {
    check_world(config, *env, arguments);
    if (fetches && !fetch_missing(config.data.source, env->local_world_size)) {
      return 1;
    }
    exec_program(worker_command(arguments), rank_variables(env->local_world_size));
  }
  const int ranks = config.num_ranks_here();
  const bool one_process =
      config.ranks.kind == RankKind::thread || (ranks == 1 && config.ranks.nnodes == 1);
  if (config.needs_mpirun()) {
    ask_for_mpirun(ranks, arguments);
  }
  if (fetches && !fetch_missing(config.data.source, 1)) {
    return 1;
  }
  std::optional<DataReader> reader;
  Variables variables;
  if (one_process || config.data.share != Share::scatter) {
    reader.emplace(config.data.source, config.data.limit);
    variables = reader->variables();
  }
  if (one_process) {
    const auto more = rank_variables(ranks);
    variables.insert(variables.end(), more.begin(), more.end());
    exec_program(worker_command(arguments), variables);
  }
  LaunchOptions launching;
  launching.command = worker_command(arguments);
  launching.variables = variables;
  launching.nproc_per_node = ranks;
  launching.nnodes = static_cast<int>(config.ranks.nnodes);
  launching.node_rank = static_cast<int>(config.ranks.node_rank);
  launching.master_addr = config.ranks.master_addr;
  launching.master_port = static_cast<int>(config.ranks.master_port);
  launching.timeout_seconds = config.comm.timeout_seconds;
  launching.stop_grace_seconds = config.ranks.grace_seconds;
  launching.first_rank_owns_terminal = true;
  // Ranks that report for themselves say who they are where the template does.
  launching.prefix_output = config.output.log_ranks == LogRanks::first;
  return launch(launching);
}

}  // namespace

int run_train(const Arguments& arguments) {
  int code = 0;
  const int failure =
      run_as_rank([&] { code = train_or_launch(with_own_names(arguments)); });
  return failure != 0 ? failure : code;
}

}  // namespace tandem::app
