#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
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
[[nodiscard]] TrainingState local_state(
    const ModelArenas& arenas, Optimizer& optimizer);

/// Everything a strategy works with; all outlive it.
struct StrategyParts {
  Communicator& comm;
  StageExecutor& executor;
  ModelArenas& arenas;
  Optimizer& optimizer;
  Loss loss = {};
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
  /// Returns the sums of this rank's batches; empty on a stage that sees no loss.
  virtual StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) = 0;

  /// The same sums for one batch in evaluation mode, no gradients.
  virtual StepSums evaluate_batch(const Batch& batch, const StepContext& context) = 0;

  /// After an epoch's last step, before the evaluation; `last`: no step follows. Where
  /// the evaluation ends the run, it is called again. Collective.
  virtual void end_epoch(bool /*last*/) {}

  virtual DataShard data_shard() const = 0;
  virtual Consistency consistency() const = 0;

  /// Whether the ranks make their steps together: to agree in the middle of an epoch
  /// then waits for nobody.
  bool in_lockstep() const {
    return consistency() == Consistency::replicated ||
           consistency() == Consistency::sharded;
  }

  /// Whether all ranks have waited for each other in the last step, and are at the same
  /// one: agreeing then costs nobody time.
  virtual bool ranks_have_met() const {
    return in_lockstep();
  }

  /// Whether train_step() waits for no other rank, or for a server's answer only. Ranks
  /// then learn of a signal in the middle of an epoch one by one, and each calls
  /// leave_steps() before they meet: behind it none waits for another one's step.
  virtual bool steps_alone() const {
    return false;
  }
  virtual void leave_steps() {}

  /// Brings parameters and buffers into the state to evaluate or save.
  virtual void before_evaluation() = 0;

  /// What a checkpoint holds: complete at rank 0, whatever the strategy. The
  /// tensors may be the run's own. Collective.
  virtual TrainingState collect_state() = 0;

  /// What a checkpoint must hold of this rank beside the logical file: error
  /// feedback, local parameters. Empty when there is nothing. To resume, values are
  /// loaded into these tensors, after start(), and rank_state_loaded() tells so.
  virtual std::vector<NamedTensor> rank_state() {
    return {};
  }
  virtual void rank_state_loaded() {}

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

/// Whether this rank leaves all updates to another one, and so needs no optimizer
/// state: a worker of the strategy parameter_server.
bool updates_elsewhere(const StrategyOptions& options, const Communicator& comm);

/// options.optimizer_state `automatic` is `replicated` here (train/assembly.h knows
/// better). Throws ConfigError for a strategy that cannot run with these parts.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts);

}  // namespace tandem
