#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Every way of keeping ranks in step: parallel/strategies has a make_NAME() for each.
#define TANDEM_STRATEGIES(ROW) \
  ROW(sequential)              \
  ROW(data_parallel)           \
  ROW(hogwild)                 \
  ROW(parameter_server)        \
  ROW(averaging)               \
  ROW(pipeline)                \
  ROW(model_parallel)

#define TANDEM_ENUMERATOR(name) name,
enum class StrategyKind { TANDEM_STRATEGIES(TANDEM_ENUMERATOR) };
#undef TANDEM_ENUMERATOR

/// What others need to know of a strategy before it is made.
enum StrategyTrait : unsigned {
  kNoTrait = 0,
  // Each rank has its stage of the model only (parallel/pipeline/grid.h says which).
  kHasStages = 1,
  // A comm_hook can compress its gradients on the way.
  kHasCommHook = 2,
  // Every rank sees all gradients before parameters change, so a step whose gradients
  // overflowed can be left out.
  kScalesLoss = 4,
  // All ranks train on one set of parameters in the memory of one host.
  kSharesParameters = 8,
  // Rank 0 alone updates.
  kHasServer = 16,
  // Stages are idle unless a step has at least as many micro-batches.
  kWantsMicroBatches = 32,
  // Replicas of it can share out the update.
  kSharesUpdate = 64,
  // All ranks make one step together, which waits for none without samples: so its
  // batch can be divided among them.
  kDividesBatch = 128,
};

struct StrategyRow {
  StrategyKind value;
  const char* name;
  const char* help = "";
  // Of StrategyTrait.
  unsigned traits = kNoTrait;
};
template <>
struct Choices<StrategyKind> {
  static constexpr StrategyRow rows[] = {
      {StrategyKind::sequential, "sequential",
       "one rank. The reference for the others; costs no communication, and the time "
       "of one rank",
       kHasCommHook | kScalesLoss | kSharesUpdate | kDividesBatch},
      {StrategyKind::data_parallel, "data_parallel",
       "replicas, gradients averaged in every step: for every model that fits one "
       "rank. Costs an all-reduce of all gradients a step, and waits for the slowest",
       kHasCommHook | kScalesLoss | kSharesUpdate | kDividesBatch},
      {StrategyKind::hogwild, "hogwild",
       "ranks of one host train on one set of parameters, without locks: for small "
       "models, where waiting for each other costs most. Results differ from run to "
       "run",
       kSharesParameters},
      {StrategyKind::parameter_server, "parameter_server",
       "rank 0 updates, the others push gradients and pull parameters by RPC: for "
       "ranks of unequal speed (--server-updates asynchronous) or when only one can "
       "hold the optimizer's state. Costs a rank that computes no gradients, and the "
       "server's link carries everybody's traffic",
       kHasServer},
      {StrategyKind::averaging, "averaging",
       "ranks train alone, parameters averaged now and then: for slow links, or data "
       "that must stay where it is. Costs accuracy per epoch, the more the longer "
       "--average-every: in between each rank learns from its own samples only"},
      {StrategyKind::pipeline, "pipeline",
       "the model's layers in --stages, each batch in --micro-batches, --replicas of "
       "it. For models too large for one rank; costs the time in which a stage waits "
       "for the first and last micro-batches",
       kHasStages | kWantsMicroBatches | kSharesUpdate},
      {StrategyKind::model_parallel, "model_parallel",
       "pipeline under its old name: with one micro-batch a step one stage works at a "
       "time. For models too large for one rank where the batch cannot be divided; "
       "costs all speed-up",
       kHasStages | kSharesUpdate},
      {StrategyKind::data_parallel, "ddp"}};
};

constexpr bool has_trait(StrategyKind kind, StrategyTrait trait) {
  return (row_of(kind).traits & trait) != 0;
}

inline std::vector<StrategyKind> kinds_with(StrategyTrait trait) {
  std::vector<StrategyKind> kinds;
  for (const auto& choice : choices<StrategyKind>()) {
    if (has_trait(choice.value, trait)) {
      kinds.push_back(choice.value);
    }
  }
  return kinds;
}

/// When gradients are reduced.
enum class SyncMode { parameter, flat, overlap };
template <>
struct Choices<SyncMode> {
  static constexpr Choice<SyncMode> rows[] = {
      {SyncMode::parameter, "parameter", "one all-reduce each, after backward"},
      {SyncMode::flat, "flat", "one all-reduce of all, after backward"},
      {SyncMode::overlap, "overlap",
       "one for each bucket as soon as it is full, while backward goes on"}};
};

/// How buffers (batch norm's running statistics) are kept in step before an
/// evaluation or a checkpoint. In training mode nothing reads them. With `sync`
/// (SyncBatchNorm) they come from the samples of all ranks and are equal anyway.
enum class BufferSync { broadcast, average, off, sync };
template <>
struct Choices<BufferSync> {
  static constexpr Choice<BufferSync> rows[] = {
      {BufferSync::broadcast, "broadcast"},
      {BufferSync::average, "average"},
      {BufferSync::off, "off"},
      {BufferSync::sync, "sync", "statistics of all ranks' samples in every step"}};
};

/// What buckets are converted to on the way.
enum class CommHook { none, fp16, bf16 };
template <>
struct Choices<CommHook> {
  static constexpr Choice<CommHook> rows[] = {
      {CommHook::none, "none"}, {CommHook::fp16, "fp16"}, {CommHook::bf16, "bf16"}};
};

/// Who keeps the optimizer's state and updates with it.
enum class OptimizerState { automatic, replicated, sharded };
template <>
struct Choices<OptimizerState> {
  static constexpr Choice<OptimizerState> rows[] = {
      {OptimizerState::automatic, "auto", "sharded over shared memory"},
      {OptimizerState::replicated, "replicated", "every rank"},
      {OptimizerState::sharded, "sharded",
       "each rank updates its share: ZeRO-1; the same results"}};
};

/// In which order a pipeline's stages work on micro-batches.
enum class PipelineSchedule { gpipe, one_forward_one_backward };
template <>
struct Choices<PipelineSchedule> {
  static constexpr Choice<PipelineSchedule> rows[] = {
      {PipelineSchedule::gpipe, "gpipe", "all forwards, then all backwards"},
      {PipelineSchedule::one_forward_one_backward, "1f1b",
       "one forward, one backward, as soon as the pipeline is full; holds fewer "
       "activations"}};
};

/// What the stages of a model should have alike.
enum class Balance { time, memory };
template <>
struct Choices<Balance> {
  static constexpr Choice<Balance> rows[] = {
      {Balance::time, "time", "the time of a step"},
      {Balance::memory, "memory", "parameters, and the optimizer's state with them"}};
};

enum class ServerUpdates { synchronous, asynchronous };
template <>
struct Choices<ServerUpdates> {
  static constexpr Choice<ServerUpdates> rows[] = {
      {ServerUpdates::synchronous, "synchronous"},
      {ServerUpdates::asynchronous, "asynchronous"}};
};

/// What follows when replicas' parameters differ.
enum class DriftCheck { stop, resync, off };
template <>
struct Choices<DriftCheck> {
  static constexpr Choice<DriftCheck> rows[] = {
      {DriftCheck::stop, "stop"},
      {DriftCheck::resync, "resync", "go on from rank 0's"},
      {DriftCheck::off, "off", "nobody looks"}};
};

/// How ranks stay in step.
struct StrategyOptions {
  // Values of average_every.
  static constexpr int64_t kEveryEpoch = 0;
  static constexpr int64_t kAtTheEnd = -1;

  StrategyKind kind = StrategyKind::data_parallel;
  SyncMode sync = SyncMode::overlap;
  // A bucket is sent when it holds this many bytes. Larger buckets mean fewer
  // messages, which start later.
  int64_t bucket_bytes = 1024 * 1024;
  BufferSync buffers = BufferSync::broadcast;
  CommHook comm_hook = CommHook::none;
  // Sharded: each rank updates its share of the parameters, keeps the optimizer's state
  // for that only, and gives the result to the others: the same bits, a part of the
  // work and memory. Source: ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory
  // Optimizations Toward Training Trillion Parameter Models", SC 2020), as PyTorch's
  // ZeroRedundancyOptimizer beside DistributedDataParallel: gradients are reduced
  // whole. The arenas' divisor is the number of ranks. Replicas cannot drift apart:
  // each parameter comes from one rank in every step.
  OptimizerState optimizer_state = OptimizerState::automatic;
  // Scale gradients down to this global 2-norm; 0: leave them.
  double clip_norm = 0;
  DriftCheck drift_check = DriftCheck::stop;

  // averaging: optimizer steps from 1, kEveryEpoch, or kAtTheEnd of the run only, when
  // rank 0 gathers all ranks' parameters.
  int64_t average_every = kEveryEpoch;
  // pipeline; 0: as many as the number of ranks leaves
  int64_t stages = 0;
  int64_t replicas = 0;
  // The layers with which stages begin, but for the first, commas between; "": where
  // `balance` has them.
  std::string cut;
  Balance balance = Balance::time;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  // parameter_server
  ServerUpdates server_updates = ServerUpdates::synchronous;
  int64_t max_staleness = 4;

  template <typename Table>
  static void describe(Table& table) {
    using O = StrategyOptions;
    table.section("parallel");
    table.add("strategy", &O::kind, "how ranks stay in step").at_the_end();
    table.add("sync", &O::sync, "when gradients are reduced");
    table.add("bucket_bytes", &O::bucket_bytes, "bytes per bucket of overlap")
        .between(1, kMany);
    table.add("buffers", &O::buffers, "how batch norm's are kept in step");
    table.add("comm_hook", &O::comm_hook, "compress gradients on the way")
        .needs("strategy", &O::kind, kinds_with(kHasCommHook));
    table
        .add("optimizer_state", &O::optimizer_state, "who keeps it and updates with it")
        .needs("strategy", &O::kind, kinds_with(kSharesUpdate));
    table.add("clip_norm", &O::clip_norm, "largest norm of all gradients; 0: any")
        .between(0, kLarge)
        .also({"--gradient-clip-val"});
    table.add(
        "drift_check", &O::drift_check,
        "what follows when replicas' parameters differ");
    table.add("average_every", &O::average_every, "a number of steps")
        .between(1, kMany)
        .or_word("epoch", kEveryEpoch, "at the end of each")
        .or_word("end", kAtTheEnd, "of the run: rank 0 gathers")
        .of("averaging");
    table.add("stages", &O::stages, "parts of the model; 0: ranks / replicas")
        .between(0, 4096)
        .of("pipeline");
    table.add("replicas", &O::replicas, "copies of the pipeline; 0: ranks / stages")
        .between(0, 4096)
        .of("pipeline");
    table
        .add(
            "cut", &O::cut,
            "layers with which stages begin, such as fc1 or conv2,fc1; none: where "
            "balance has them")
        .needs("strategy", &O::kind, kinds_with(kHasStages));
    table.add("balance", &O::balance, "what stages should have alike")
        .needs("strategy", &O::kind, kinds_with(kHasStages));
    table
        .add(
            "pipeline_schedule", &O::pipeline_schedule,
            "in which order stages work on micro-batches")
        .of("pipeline");
    table
        .add(
            "server_updates", &O::server_updates, "whether workers wait for each other")
        .of("parameter_server");
    table
        .add(
            "max_staleness", &O::max_staleness,
            "steps that a worker may be ahead of the slowest")
        .between(0, kMany)
        .of("asynchronous updates");
  }
};

}  // namespace tandem
