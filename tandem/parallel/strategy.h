#pragma once

#include <cstdint>
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
/// evaluation or a checkpoint. In training mode nothing reads them.
enum class BufferSync { broadcast, average, off };

struct StrategyOptions {
  std::string name = "data_parallel";
  SyncMode sync = SyncMode::overlap;
  BufferSync buffers = BufferSync::broadcast;
  Loss loss;
  // Scale gradients down to this global 2-norm; 0: leave them.
  double clip_norm = 0;

  // --- speed ---
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

  /// Makes all ranks start alike (broadcast from rank 0) and compares their
  /// layouts. Collective; call once, and again after loading a checkpoint.
  virtual void start() = 0;

  /// One optimizer step over the micro-batches given, of which each rank has the
  /// same number; a rank that reads no data gets none and serves the others.
  /// Returns {summed loss, right answers, samples} of this rank's
  /// batches, float64; on a stage that sees no loss, zeros.
  virtual at::Tensor train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) = 0;

  /// The same sums for one batch in evaluation mode, no gradients.
  virtual at::Tensor evaluate_batch(const Batch& batch, const StepContext& context) = 0;

  virtual DataShard data_shard() const = 0;
  virtual Consistency consistency() const = 0;

  /// Brings parameters and buffers into the state to evaluate or save.
  virtual void before_evaluation() = 0;

  /// What a checkpoint holds: complete at rank 0, whatever the strategy. The
  /// tensors may be the run's own. Collective.
  virtual TrainingState collect_state() = 0;

  /// What a checkpoint must hold of this rank beside the logical file: error
  /// feedback, local parameters. Empty when there is nothing.
  virtual std::vector<NamedTensor> rank_state() = 0;

  /// 2-norm of the step's gradients over all ranks' parts.
  virtual double global_norm() = 0;
};

/// One row per strategy, for the factory and help texts.
struct StrategyEntry {
  const char* name;
  const char* help;
  std::unique_ptr<Strategy> (*make)(const StrategyOptions&, const StrategyParts&);
};
const std::vector<StrategyEntry>& strategy_table();

/// Throws ConfigError for an unknown name (naming the nearest) or a strategy
/// that cannot run with these parts.
std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts);

SyncMode parse_sync_mode(const std::string& name);
BufferSync parse_buffer_sync(const std::string& name);

}  // namespace tandem
