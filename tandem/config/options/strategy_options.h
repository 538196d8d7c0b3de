#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Strategies, which the files in parallel/strategies implement.
enum class StrategyKind {
  sequential,
  data_parallel,
  hogwild,
  parameter_server,
  averaging,
  pipeline,
  model_parallel,
};

/// Properties of a strategy that are needed before the strategy is constructed.
enum StrategyTrait : unsigned {
  kNoTrait = 0,
  // Each rank has only a stage of the model (parallel/pipeline/grid.h).
  kHasStages = 1,
  // A comm_hook can compress the gradients that ranks send.
  kHasCommHook = 2,
  // Every rank has all gradients before parameters change. All ranks can therefore skip
  // a step whose gradients overflowed.
  kScalesLoss = 4,
  // All ranks train one set of parameters in the memory of one host.
  kSharesParameters = 8,
  // Only rank 0 updates parameters.
  kHasServer = 16,
  // Stages are idle unless a step has at least as many micro-batches as stages.
  kWantsMicroBatches = 32,
  // The optimizer's update can be divided among replicas (Sharding::optimizer).
  kSharesUpdate = 64,
  // All ranks make every step together, even ranks without samples. A batch can
  // therefore be divided among the ranks.
  kDividesBatch = 128,
  // Between averages, each rank trains separate parameters.
  kTrainsAlone = 256,
};

struct StrategyRow {
  StrategyKind value;
  const char* name;
  const char* help = "";
  // Bits of StrategyTrait.
  unsigned traits = kNoTrait;
};
template <>
struct Choices<StrategyKind> {
  static constexpr StrategyRow rows[] = {
      {StrategyKind::sequential, "sequential",
       "one rank: the reference for all other strategies. Costs no communication",
       kHasCommHook | kScalesLoss | kSharesUpdate | kDividesBatch},
      {StrategyKind::data_parallel, "data_parallel",
       "replicas average gradients in every step: for every model that fits one rank. "
       "Costs an all-reduce of all gradients per step, and ranks wait for the slowest",
       kHasCommHook | kScalesLoss | kSharesUpdate | kDividesBatch},
      {StrategyKind::hogwild, "hogwild",
       "ranks of one host train one set of parameters without locks: for small models, "
       "where waiting for other ranks costs most. Results differ from run to run",
       kSharesParameters},
      {StrategyKind::parameter_server, "parameter_server",
       "rank 0 updates, other ranks push gradients and pull parameters by RPC: for "
       "ranks of unequal speed (--server-updates asynchronous), or if only one rank "
       "can hold the optimizer's state. Costs a rank that computes no gradients, and "
       "all traffic goes through the server",
       kHasServer},
      {StrategyKind::averaging, "averaging",
       "local SGD: ranks train alone and average their parameters every "
       "--average-every steps: for slow networks, or data that must stay on its host. "
       "Costs accuracy per epoch, and more if averages are rare, since each rank "
       "learns only from its own samples in between",
       kTrainsAlone},
      {StrategyKind::pipeline, "pipeline",
       "each rank has some layers (--stages), and a batch passes in parts "
       "(--micro-batches); --replicas repeats the pipeline: for models too large for "
       "one rank. Stages wait for the first and the last micro-batches",
       kHasStages | kWantsMicroBatches | kSharesUpdate},
      {StrategyKind::model_parallel, "model_parallel",
       "pipeline with one micro-batch per step, so that one stage works at a time: for "
       "models too large for one rank whose batch cannot be divided. No speed-up",
       kHasStages | kSharesUpdate},
      {StrategyKind::data_parallel, "ddp"}};
};

/// Returns whether a strategy has a trait.
constexpr bool has_trait(StrategyKind kind, StrategyTrait trait) {
  return (row_of(kind).traits & trait) != 0;
}

/// Returns all strategies with a trait.
inline std::vector<StrategyKind> kinds_with(StrategyTrait trait) {
  std::vector<StrategyKind> kinds;
  for (const auto& choice : choices<StrategyKind>()) {
    if (has_trait(choice.value, trait)) {
      kinds.push_back(choice.value);
    }
  }
  return kinds;
}

/// Grouping of gradients into all-reduces: one per tensor, one for all gradients, or
/// one per bucket while backward runs.
enum class SyncMode { parameter, flat, overlap };
template <>
struct Choices<SyncMode> {
  static constexpr Choice<SyncMode> rows[] = {
      {SyncMode::parameter, "parameter", "one all-reduce per tensor, after backward"},
      {SyncMode::flat, "flat", "one all-reduce of all gradients, after backward"},
      {SyncMode::overlap, "overlap", "one all-reduce per bucket, during backward"}};
};

/// Synchronization of buffers (running statistics of batch norm) before an evaluation
/// or a checkpoint. Training does not read these buffers. With `sync` (SyncBatchNorm),
/// the statistics cover the samples of all ranks in every step, so the buffers of all
/// ranks are always equal.
enum class BufferSync { broadcast, average, off, sync };
template <>
struct Choices<BufferSync> {
  static constexpr Choice<BufferSync> rows[] = {
      {BufferSync::broadcast, "broadcast", "rank 0's"},
      {BufferSync::average, "average"},
      {BufferSync::off, "off", "each rank keeps its own"},
      {BufferSync::sync, "sync",
       "SyncBatchNorm: statistics of all ranks' samples in every step"}};
};

/// Type to which gradients are converted for an all-reduce.
enum class CommHook { none, fp16, bf16 };
template <>
struct Choices<CommHook> {
  static constexpr Choice<CommHook> rows[] = {
      {CommHook::none, "none"}, {CommHook::fp16, "fp16"}, {CommHook::bf16, "bf16"}};
};

/// Values of which each rank keeps only a part. Each value includes the values before
/// it.
enum class Sharding { automatic, none, optimizer, gradients, parameters };
template <>
struct Choices<Sharding> {
  static constexpr Choice<Sharding> rows[] = {
      {Sharding::automatic, "auto", "optimizer if ranks share memory, else none"},
      {Sharding::none, "none", "every rank keeps everything"},
      {Sharding::optimizer, "optimizer",
       "ZeRO-1: each rank updates a part of the parameters, and keeps the optimizer's "
       "state of only this part"},
      {Sharding::gradients, "gradients",
       "ZeRO-2: in addition, each rank keeps the gradients of only its part"},
      {Sharding::parameters, "parameters",
       "ZeRO-3, as FSDP: in addition, each rank keeps only its part of the parameters, "
       "and gathers others when operators use them"},
      {Sharding::none, "replicated"},
      {Sharding::optimizer, "sharded"}};
};

/// Order of the tasks of a pipeline's stages in a step.
enum class PipelineSchedule { gpipe, one_forward_one_backward };
template <>
struct Choices<PipelineSchedule> {
  static constexpr Choice<PipelineSchedule> rows[] = {
      {PipelineSchedule::gpipe, "gpipe", "all forwards, then all backwards"},
      {PipelineSchedule::one_forward_one_backward, "1f1b",
       "one forward, one backward once the pipeline is full; keeps fewer "
       "activations"}};
};

/// Quantity that is divided evenly among the stages of a model.
enum class Balance { time, memory };
template <>
struct Choices<Balance> {
  static constexpr Choice<Balance> rows[] = {
      {Balance::time, "time", "time of a step"},
      {Balance::memory, "memory", "parameters, and with them the optimizer's state"}};
};

/// Updates by a parameter server: one update with the gradients of all workers, or one
/// update for each worker's gradients.
enum class ServerUpdates { synchronous, asynchronous };
template <>
struct Choices<ServerUpdates> {
  static constexpr Choice<ServerUpdates> rows[] = {
      {ServerUpdates::synchronous, "synchronous"},
      {ServerUpdates::asynchronous, "asynchronous"}};
};

/// Update of the parameters after each average of all ranks.
enum class OuterOptimizer { none, nesterov };
template <>
struct Choices<OuterOptimizer> {
  static constexpr Choice<OuterOptimizer> rows[] = {
      {OuterOptimizer::none, "none", "the parameters are the average"},
      {OuterOptimizer::nesterov, "nesterov",
       "DiLoCo: SGD with Nesterov momentum; the gradient is the mean change since the "
       "last average"}};
};

/// Reaction to replicas whose parameters differ.
enum class DriftCheck { stop, resync, off };
template <>
struct Choices<DriftCheck> {
  static constexpr Choice<DriftCheck> rows[] = {
      {DriftCheck::stop, "stop", "end the run with an error"},
      {DriftCheck::resync, "resync", "continue with rank 0's"},
      {DriftCheck::off, "off", "no check"}};
};

/// Strategy of a run and its settings.
struct StrategyOptions {
  // Special values of average_every.
  static constexpr int64_t kEveryEpoch = 0;
  static constexpr int64_t kAtTheEnd = -1;
  // Special values of shard_group.
  static constexpr int64_t kAllRanks = 0;
  static constexpr int64_t kRanksOfHost = -1;

  StrategyKind kind = StrategyKind::data_parallel;
  SyncMode sync = SyncMode::overlap;
  // Maximum size of a bucket of gradients, in bytes. With larger buckets there are
  // fewer messages, and they start later.
  int64_t bucket_bytes = 1024 * 1024;
  BufferSync buffers = BufferSync::broadcast;
  CommHook comm_hook = CommHook::none;
  // With `optimizer`, each rank gets the sums of the gradients of its part, updates
  // this part of the parameters, and sends it to the other ranks, so it sends as many
  // bytes as with `none`. With `parameters`, it sends 1.5 times as many. Over shared
  // memory and between threads, results have the bits of `none`; other backends may sum
  // in another order.
  //
  // The divisor of the arenas (core/arena.h) is the number of ranks. The parameters of
  // replicas cannot diverge, because in every step one rank computes each parameter for
  // all ranks. Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
  // Trillion Parameter Models", SC 2020.
  Sharding shard = Sharding::automatic;
  // Number of consecutive ranks that divide the values among them, kAllRanks or
  // kRanksOfHost. Groups are replicas of each other (hybrid sharding): gradients are
  // summed within each group, and then between the ranks that have the same part.
  int64_t shard_group = kAllRanks;
  // Maximum 2-norm of all gradients together. If the norm is greater, gradients are
  // scaled down. 0: no limit.
  double clip_norm = 0;
  DriftCheck drift_check = DriftCheck::stop;

  // averaging: number of optimizer steps between two averages, kEveryEpoch, or
  // kAtTheEnd. With kAtTheEnd, rank 0 averages the parameters of all ranks at the end
  // of the run.
  int64_t average_every = kEveryEpoch;
  // averaging: an optimizer for each average, with its learning rate and momentum.
  // Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of
  // Language Models", 2023.
  OuterOptimizer outer_optimizer = OuterOptimizer::none;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  // pipeline: number of stages (0: ranks / replicas), and of replicas (0: ranks /
  // stages).
  int64_t stages = 0;
  int64_t replicas = 0;
  // First layers of all stages except the first stage, separated by commas. If empty,
  // `balance` determines the stages.
  std::string cut;
  Balance balance = Balance::time;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  // parameter_server: with asynchronous updates, `max_staleness` is the maximum number
  // of steps by which a worker may be ahead of the slowest worker.
  ServerUpdates server_updates = ServerUpdates::synchronous;
  int64_t max_staleness = 4;

  /// Returns the largest size of a bucket, in bytes, for ModelArenaOptions.
  int64_t largest_bucket() const {
    switch (sync) {
      case SyncMode::parameter:
        return 0;
      case SyncMode::flat:
        return std::numeric_limits<int64_t>::max();
      default:
        return bucket_bytes;
    }
  }

  template <typename Table>
  static void describe(Table& table) {
    using O = StrategyOptions;
    table.section("parallel");
    table.add("strategy", &O::kind, "distributed training strategy").at_the_end();
    table.add("sync", &O::sync, "grouping of gradients into all-reduces");
    table
        .add(
            "bucket_bytes", &O::bucket_bytes,
            "size of a bucket of --sync overlap, in bytes")
        .between(1, kMany);
    table.add(
        "buffers", &O::buffers, "buffers of batch norm in evaluations and checkpoints");
    table.add("comm_hook", &O::comm_hook, "type in which gradients are sent")
        .needs("strategy", &O::kind, kinds_with(kHasCommHook));
    table.add("shard", &O::shard, "values of which each rank keeps only a part")
        .needs("strategy", &O::kind, kinds_with(kSharesUpdate))
        .formerly("optimizer_state");
    table
        .add(
            "shard_group", &O::shard_group,
            "number of consecutive ranks that divide the values of --shard among them")
        .between(2, kMany)
        .or_word("all", kAllRanks, "all ranks")
        .or_word("host", kRanksOfHost, "the ranks of each host, as in HSDP")
        .needs(
            "shard", &O::shard,
            {Sharding::optimizer, Sharding::gradients, Sharding::parameters});
    table
        .add("clip_norm", &O::clip_norm, "largest 2-norm of all gradients; 0: no limit")
        .between(0, kLarge)
        .also({"--gradient-clip-val"});
    table.add(
        "drift_check", &O::drift_check,
        "reaction if the parameters of replicas differ");
    table.add("average_every", &O::average_every, "steps between averages")
        .between(1, kMany)
        .or_word("epoch", kEveryEpoch, "average at the end of each epoch")
        .or_word("end", kAtTheEnd, "average at the end of the run, on rank 0")
        .of("averaging");
    table
        .add(
            "outer_optimizer", &O::outer_optimizer,
            "update of the parameters after each average")
        .needs("strategy", &O::kind, kinds_with(kTrainsAlone))
        .kept();
    table.add("outer_lr", &O::outer_lr, "learning rate of the outer optimizer")
        .between(0, kLarge)
        .needs("outer_optimizer", &O::outer_optimizer, {OuterOptimizer::nesterov});
    table.add("outer_momentum", &O::outer_momentum, "momentum of the outer optimizer")
        .between(0, 1)
        .needs("outer_optimizer", &O::outer_optimizer, {OuterOptimizer::nesterov});
    table.add("stages", &O::stages, "number of stages; 0: ranks / replicas")
        .between(0, 4096)
        .of("pipeline");
    table.add("replicas", &O::replicas, "number of pipelines; 0: ranks / stages")
        .between(0, 4096)
        .of("pipeline");
    table
        .add(
            "cut", &O::cut,
            "first layers of the second and later stages, such as fc1 or conv2,fc1; "
            "empty: divided by --balance")
        .needs("strategy", &O::kind, kinds_with(kHasStages));
    table.add("balance", &O::balance, "quantity to divide evenly among stages")
        .needs("strategy", &O::kind, kinds_with(kHasStages));
    table
        .add(
            "pipeline_schedule", &O::pipeline_schedule,
            "order in which stages work on micro-batches")
        .of("pipeline");
    table
        .add(
            "server_updates", &O::server_updates,
            "update for all workers together, or for each worker")
        .of("parameter_server");
    table
        .add(
            "max_staleness", &O::max_staleness,
            "steps by which a worker may be ahead of the slowest")
        .between(0, kMany)
        .of("asynchronous updates");
  }
};

}  // namespace tandem
