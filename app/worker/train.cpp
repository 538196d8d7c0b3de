#include "app/command_line.h"
#include "app/run_as_rank.h"
#include "app/train_flags.h"
#include "tandem/base/signals.h"
#include "tandem/base/standard_streams.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/comm/join/join.h"
#include "tandem/data/prepared_data.h"
#include "tandem/train/assembly.h"
#include "tandem/train/report/progress.h"
#include "tandem/train/scatter.h"
#include "tandem/train/trainer.h"

namespace tandem::app {

namespace {

// The ranks that do not read the files need not have them.
DatasetSplits load_shared(
    const RunConfig& config, Communicator& comm, const Deadline& deadline) {
  return scatter_dataset(
      [&] {
        return load_prepared_dataset(config.data.source, config.data.limit, deadline);
      },
      static_cast<uint64_t>(config.training.seed), comm);
}

void train_as_process(const RunConfig& config) {
  const Deadline deadline(config.comm.timeout());
  const auto env = read_rank_env().value_or(RankEnv{});
  print_join_line(config, env.rank, env.local_rank);
  JoinedRun run = join_run(env, config.comm);
  train(
      config,
      config.data.share == Share::scatter
          ? load_shared(config, *run.comm, deadline)
          : load_prepared_dataset(config.data.source, config.data.limit, deadline),
      *run.comm);
}

void train_as_threads(const RunConfig& config) {
  const Deadline deadline(config.comm.timeout());
  const bool scatter = config.data.share == Share::scatter;
  const auto data =
      scatter ? DatasetSplits()
              : load_prepared_dataset(config.data.source, config.data.limit, deadline);
  run_ranks(
      config.num_ranks_here(),
      [&](Communicator& comm) {
        print_join_line(config, comm.rank(), comm.rank());
        train(config, scatter ? load_shared(config, comm, deadline) : data, comm);
      },
      config.comm.timeout());
}

}  // namespace

int work_train(const Arguments& arguments) {
  catch_signals();
  return run_as_rank([&] {
    const RunConfig config = parse_train_arguments(arguments);
    outlive_readers();
    if (config.ranks.kind == RankKind::thread) {
      train_as_threads(config);
    } else {
      train_as_process(config);
    }
  });
}

}  // namespace tandem::app
