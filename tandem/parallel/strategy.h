#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// What the ranks' parameters are to each other. Drift check, checkpoint and
/// audit follow from it.
enum class Consistency {
  // Equal bits on all ranks after every step.
  replicated,
  // Each rank holds a part (a pipeline stage).
  sharded,
  // Equal only after an averaging step.
  equal_between_syncs,
  // Whatever the others wrote last.
  asynchronous,
};

/// Which part of the data a rank reads: its place on the replica axis, not its
/// rank in the world.
struct DataShard {
  int64_t num_shards = 1;
  // -1: this rank reads no data (a parameter server).
  int64_t shard = 0;
  // False where another rank reads the same samples and answers for them (all
  // stages of a pipeline but the last): the audit then counts them once.
  bool counted = true;
};

/// A training run's tensors by name: the model's parameters and buffers with the
/// names of state_dict(), the optimizer's state as "<state>/<parameter>".
struct TrainingState {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
};

/// The tensors that live on this rank.
TrainingState local_state(const ModelArenas& arenas, Optimizer& optimizer);

/// When gradients are reduced.
enum class SyncMode {
  // One all-reduce per parameter, after backward.
  parameter,
  // One all-reduce of the gradient arena, after backward.
  flat,
  // One per bucket as soon as it is full, while backward goes on.
  overlap,
};

/// How buffers (batch norm's running statistics) are kept in step before an
/// evaluation or a checkpoint. In training mode nothing reads them. With `sync`
/// (SyncBatchNorm) they come from the samples of all ranks and are equal anyway.
enum class BufferSync { broadcast, average, off, sync };

/// What buckets are converted to on the way.
enum class CommHook { none, fp16, bf16 };

/// In which order a pipeline's stages work on micro-batches.
enum class PipelineSchedule {
  // All forwards, then all backwards.
  gpipe,
  // One forward, one backward, as soon as the pipeline is full.
  one_forward_one_backward,
};

/// When parameters are averaged.
struct AverageEvery {
  // Optimizer steps; 0: at the ends of epochs; -1: at the end of the run only, when
  // rank 0 gathers all ranks' parameters.
  int64_t steps = 0;
};

struct StrategyOptions {
  std::string name = "data_parallel";
  SyncMode sync = SyncMode::overlap;
  BufferSync buffers = BufferSync::broadcast;
  Loss loss;
  // Scale gradients down to this global 2-norm; 0: leave them.
  double clip_norm = 0;

  // averaging
  AverageEvery average_every;
  // pipeline; 0: as many as the number of ranks leaves
  int64_t stages = 0;
  int64_t replicas = 0;
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_forward_one_backward;
  // parameter_server
  bool asynchronous = false;
  int64_t max_staleness = 4;

  // --- speed ---
  CommHook comm_hook = CommHook::none;
  // Each rank updates its share of the parameters, keeps the optimizer's state for that
  // only, and gives the result to the others: the same bits, a part of the work and
  // memory. Source: ZeRO stage 1 (Rajbhandari et al., "ZeRO: Memory Optimizations
  // Toward Training Trillion Parameter Models", SC 2020), as PyTorch's
  // ZeroRedundancyOptimizer beside DistributedDataParallel: gradients are reduced
  // whole.
  // The arenas' divisor is the number of ranks. Replicas cannot drift apart: each
  // parameter comes from one rank in every step.
  bool shard_optimizer = false;
  // A bucket is sent when it holds this many bytes. Larger buckets mean fewer
  // messages, which start later.
  int64_t bucket_bytes = 1024 * 1024;
};

/// Everything a strategy works with; all outlive it.
struct StrategyParts {
  Communicator& comm;
  StageExecutor& executor;
  ModelArenas& arenas;
  Optimizer& optimizer;
};

/// A rule for keeping the ranks' arenas in step. One per rank.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Makes all ranks start alike (from rank 0's, optimizer state too) and compares
  /// their layouts. Collective; call after loading a checkpoint.
  virtual void start() = 0;

  /// Brings ranks that drifted apart back to rank 0's parameters. Collective.
  virtual void resync() {
    start();
  }

  /// One optimizer step over the micro-batches given. Each rank makes the same
  /// number of steps; one that has no data left, or reads none, gets no batches and
  /// takes part in what the others do.
  /// Returns {summed loss, right answers, samples} of this rank's
  /// batches, float64; on a stage that sees no loss, zeros.
  virtual at::Tensor train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) = 0;

  /// The same sums for one batch in evaluation mode, no gradients.
  virtual at::Tensor evaluate_batch(const Batch& batch, const StepContext& context) = 0;

  /// After an epoch's last step, before the evaluation; `last`: no step follows.
  /// Collective.
  virtual void end_epoch(bool /*last*/) {}

  virtual DataShard data_shard() const = 0;
  virtual Consistency consistency() const = 0;

  /// Brings parameters and buffers into the state to evaluate or save.
  virtual void before_evaluation() = 0;

  /// What a checkpoint holds: complete at rank 0, whatever the strategy. The
  /// tensors may be the run's own. Collective.
  virtual TrainingState collect_state() = 0;

  /// What a checkpoint must hold of this rank beside the logical file: error
  /// feedback, local parameters. Empty when there is nothing. To resume, values are
  /// loaded into these tensors, after start().
  virtual std::vector<NamedTensor> rank_state() = 0;

  /// 2-norm of the step's gradients over all ranks' parts.
  virtual double global_norm() = 0;

  /// The ranks that hold the same parameters as this one where `sharded`; null: no
  /// others, or all.
  virtual Communicator* replicas() {
    return nullptr;
  }

  /// What it did in groups of its own, beside those of StrategyParts::comm.
  virtual CommStats own_comm_stats() const {
    return {};
  }

  /// What it measured of itself, for summary.json: by name, a value per stage or
  /// rank. Complete at rank 0. Collective.
  virtual std::map<std::string, std::vector<double>> measurements() {
    return {};
  }
};

/// One row per strategy, for the factory and help texts.
struct StrategyEntry {
  const char* name;
  const char* help;
  std::unique_ptr<Strategy> (*make)(const StrategyOptions&, const StrategyParts&);
  // Each rank has its stage of the model only (parallel/pipeline/grid.h says which).
  bool has_stages = false;
  // It reduces gradients in buckets, which a comm_hook can compress, and can share out
  // the update.
  bool has_buckets = false;
};
const std::vector<StrategyEntry>& strategy_table();

/// Throws ConfigError for an unknown name (naming the nearest) or a strategy
/// that cannot run with these parts.
std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts);

SyncMode parse_sync_mode(const std::string& name);
BufferSync parse_buffer_sync(const std::string& name);
CommHook parse_comm_hook(const std::string& name);
PipelineSchedule parse_pipeline_schedule(const std::string& name);
/// "epoch", "end", or a number of steps.
AverageEvery parse_average_every(const std::string& text);

}  // namespace tandem
