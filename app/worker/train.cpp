#include <fmt/core.h>

#include "app/command_line.h"
#include "app/run_as_rank.h"
#include "app/train_flags.h"
#include "tandem/base/signals.h"
#include "tandem/base/standard_streams.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/comm/join/join.h"
#include "tandem/data/prepared_data.h"
#include "tandem/optim/lr_schedule.h"
#include "tandem/optim/optimizer.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/assembly.h"
#include "tandem/train/scatter.h"
#include "tandem/train/trainer.h"

namespace tandem::app {

namespace {

std::chrono::milliseconds timeout_of(const RunConfig& config) {
  return std::chrono::milliseconds(static_cast<int64_t>(config.timeout_seconds * 1000));
}

// The ranks that do not read the files need not have them.
DatasetSplits load_shared(const RunConfig& config, Communicator& comm) {
  return scatter_dataset(
      [&] { return load_prepared_dataset(config.data, config.limit); },
      static_cast<uint64_t>(config.seed), comm);
}

void train_as_process(const RunConfig& config) {
  const auto env = read_rank_env().value_or(RankEnv{});
  JoinedRun run = join_run(env, {config.backend, timeout_of(config)});
  train(
      config,
      config.share == "scatter" ? load_shared(config, *run.comm)
                                : load_prepared_dataset(config.data, config.limit),
      *run.comm);
}

void train_as_threads(const RunConfig& config) {
  const bool scatter = config.share == "scatter";
  const auto data =
      scatter ? DatasetSplits() : load_prepared_dataset(config.data, config.limit);
  run_ranks(
      config.num_ranks_here(),
      [&](Communicator& comm) {
        train(config, scatter ? load_shared(config, comm) : data, comm);
      },
      timeout_of(config));
}

template <typename Table>
void print_choices(const char* flag, const Table& table) {
  fmt::print("\n{}\n", flag);
  for (const auto& entry : table) {
    fmt::print("  {:<17} {}\n", entry.name, entry.help);
  }
}

void print_all_choices() {
  print_choices("--model", model_table());
  print_choices("--data", dataset_table());
  print_choices("--strategy", strategy_table());
  print_choices("--optimizer", optimizer_table());
  print_choices("--schedule", lr_schedule_table());
  print_choices("--executor", executor_table());
  print_choices("--backend (between processes)", backend_table());
}

RunConfig parse_or_help(const Arguments& arguments) {
  try {
    return parse_train_arguments(arguments);
  } catch (const HelpShown&) {
    print_all_choices();
    throw;
  }
}

}  // namespace

int work_train(const Arguments& arguments) {
  catch_signals();
  return run_as_rank([&] {
    const RunConfig config = parse_or_help(arguments);
    outlive_readers();
    // What does not fit is refused before ranks meet.
    loss_of(config);
    if (config.ranks == "thread") {
      train_as_threads(config);
    } else {
      train_as_process(config);
    }
  });
}

}  // namespace tandem::app
