#include "app/command_line.h"
#include "app/run_command_line.h"
#include "app/train_flags.h"
#include "app/worker/devices.h"
#include "app/worker/kubeflow_progress.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/signals.h"
#include "tandem/comm/backends/device.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/comm/exchange.h"
#include "tandem/comm/join/join.h"
#include "tandem/data/prepared_data.h"
#include "tandem/train/assembly.h"
#include "tandem/train/report/progress.h"
#include "tandem/train/scatter.h"
#include "tandem/train/trainer.h"

namespace tandem::app {

namespace {

// Loads the data on rank 0 and scatters it, so that other hosts do not need the files.
// Collective.
DatasetSplits load_shared(
    const RunConfig& config, Communicator& comm, const Deadline& deadline) {
  return scatter_dataset(
      [&] { return load_prepared_dataset(DataRequest(config), deadline); },
      static_cast<uint64_t>(config.training.seed), comm);
}

void check_backend(const RunConfig& config, const Placement& placement) {
  if (config.comm.backend == BackendKind::nccl && !placement.device) {
    throw ConfigError(
        "[comm] backend nccl needs ranks on GPUs, but the ranks compute on the CPU; "
        "use --device cuda, or --backend auto");
  }
}

// Returns a placement of the same kind on all ranks for the device `auto`: the CPU
// unless every rank has a GPU. Collective.
Placement agreed(Placement mine, const RunConfig& config, Communicator& comm) {
  if (config.exec.device.kind != DeviceChoice::Kind::automatic) {
    return mine;
  }
  const bool all_have =
      reduce_count(mine.device ? 1 : 0, ReduceOp::min, "device", comm) == 1;
  if (mine.device && !all_have) {
    log_info("[device] the ranks use the CPU, because not every rank has a GPU");
    return {};
  }
  return mine;
}

Placement place(const RunConfig& config, const TrainExtras& extras, int local_rank) {
  return find_device(extras, [&] { return find_placement(config, local_rank); });
}

// Returns the environment of a run without a launcher. It contains the recipe's address
// for join_line, although no other rank joins there.
RankEnv lone_env(const RunConfig& config) {
  RankEnv env;
  env.master_addr = config.ranks.master_addr;
  if (config.ranks.master_port > 0) {
    env.master_port = static_cast<int>(config.ranks.master_port);
  }
  return env;
}

// Returns the settings of a rank, after it has joined the run. Only the host of rank 0
// needs the directory of a run that is resumed, so the settings of the run are those
// that rank 0 has read. Collective.
RunConfig settle_settings(
    const RunConfig& config, const Arguments& arguments, const TrainExtras& extras,
    Communicator& comm) {
  const EarlierSettings earlier{
      comm.broadcast_text(extras.earlier.text, 0, "settings"), "config.toml of rank 0"};
  return earlier.text == extras.earlier.text
             ? config
             : parse_train_arguments(arguments, nullptr, &earlier);
}

// Trains, and sends the progress to Kubeflow Trainer in a pod of a TrainJob.
// Collective.
void train_and_report(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    CustomParts own) {
  const auto progress = kubeflow_progress(config, comm.rank());
  own.listener = progress.get();
  train(config, data, comm, std::move(own));
  if (progress) {
    progress->finish();
  }
}

void train_as_process(
    const RunConfig& asked, const Arguments& arguments, const TrainExtras& extras) {
  const Deadline deadline(asked.comm.timeout());
  const auto env = read_rank_env().value_or(lone_env(asked));
  print_join_line(asked, env);
  JoinedRun run = join_run(env, asked.comm);
  const RunConfig config = settle_settings(asked, arguments, extras, *run.comm);
  CustomParts own;
  own.placement = place(config, extras, env.local_rank);
  own.placement = agreed(std::move(own.placement), config, *run.comm);
  check_backend(config, own.placement);
  run.comm = make_group(run, config, own.placement);
  train_and_report(
      config,
      config.data.share == Share::scatter
          ? load_shared(config, *run.comm, deadline)
          : load_prepared_dataset(DataRequest(config), deadline),
      *run.comm, std::move(own));
}

void train_as_threads(const RunConfig& config, const TrainExtras& extras) {
  const Deadline deadline(config.comm.timeout());
  const bool scatter = config.data.share == Share::scatter;
  const auto data =
      scatter ? DatasetSplits() : load_prepared_dataset(DataRequest(config), deadline);
  run_ranks(
      config.num_ranks_here(),
      [&](Communicator& comm) {
        CustomParts own;
        own.placement = place(config, extras, comm.rank());
        RankEnv env = lone_env(config);
        env.rank = env.local_rank = comm.rank();
        print_join_line(config, env);
        const auto group =
            own.placement.device ? make_device_communicator(comm.split(0)) : nullptr;
        Communicator& own_comm = group ? *group : comm;
        train_and_report(
            config, scatter ? load_shared(config, own_comm, deadline) : data, own_comm,
            std::move(own));
      },
      config.comm.timeout());
}

}  // namespace

int work_train(const Arguments& arguments) {
  return run_as_rank([&] {
    catch_signals();
    TrainExtras extras;
    const RunConfig config = parse_train_arguments(arguments, &extras);
    ignore_closed_readers();
    if (config.ranks.kind == RankKind::thread) {
      train_as_threads(config, extras);
    } else {
      train_as_process(config, arguments, extras);
    }
  });
}

}  // namespace tandem::app
