#include "app/command_line.h"
#include "app/run_as_rank.h"
#include "app/train_flags.h"
#include "tandem/base/signals.h"
#include "tandem/comm/join.h"
#include "tandem/comm/thread.h"
#include "tandem/train/trainer.h"

namespace tandem::app {

namespace {

std::chrono::milliseconds timeout_of(const RunConfig& config) {
  return std::chrono::milliseconds(static_cast<int64_t>(config.timeout_seconds * 1000));
}

void train_as_process(const RunConfig& config) {
  const auto env = read_rank_env().value_or(RankEnv{});
  JoinedRun run = join_run(env, {config.backend, timeout_of(config)});
  train(config, load_dataset(config.data, config.limit), *run.comm);
}

void train_as_threads(const RunConfig& config) {
  const auto data = load_dataset(config.data, config.limit);
  run_ranks(
      config.num_ranks_here(), [&](Communicator& comm) { train(config, data, comm); },
      timeout_of(config));
}

}  // namespace

int work_train(const Arguments& arguments) {
  catch_signals();
  return run_as_rank([&] {
    const RunConfig config = parse_train_arguments(arguments);
    if (config.ranks == "thread") {
      train_as_threads(config);
    } else {
      train_as_process(config);
    }
  });
}

}  // namespace tandem::app
