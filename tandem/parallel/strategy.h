#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/core/arena.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// Relation between the parameters of the ranks. The drift check, checkpoints and the
/// audit of the data depend on this relation.
enum class Consistency {
  // All ranks have equal bits after every step.
  replicated,
  // Each rank has a part of the model: a pipeline stage, or with Sharding::parameters
  // a part of each bucket.
  sharded,
  // All ranks have equal parameters only immediately after an average of the
  // parameters.
  equal_between_syncs,
  // Ranks train on different values, because each rank reads the values that other
  // ranks have written so far.
  asynchronous,
};

/// The part of the data that a rank reads. All stages of a pipeline read the same
/// shard, so `shard` may differ from the rank.
struct DataShard {
  int64_t num_shards = 1;
  // Index of the shard; -1 if this rank reads no data (a parameter server).
  int64_t shard = 0;
  // True if the audit of the data (PartitionAudit) counts this rank's samples. In a
  // pipeline, it is true only for the last stage, so that each sample counts once.
  bool counted = true;
};

/// The elements [begin, end) of a tensor, in the order of its memory.
struct StatePart {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Named tensors of a run. Parameters and buffers have the names in state_dict(). The
/// optimizer's state has names of the form "<state>/<parameter>".
struct TrainingState {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  // The part of each tensor of `model` and of `optimizer` that this rank uses. Empty:
  // all elements.
  std::vector<StatePart> model_parts = {};
  std::vector<StatePart> optimizer_parts = {};
};

/// Function for a piece of a run's state. The tensors are valid during the call.
using StateVisitor = std::function<void(const TrainingState& piece)>;

/// Returns the parameters, buffers and optimizer state of this rank.
[[nodiscard]] TrainingState local_state(
    const ModelArenas& arenas, Optimizer& optimizer);

/// The objects that a strategy uses. They must outlive the strategy.
struct StrategyParts {
  Communicator& comm;
  StageExecutor& executor;
  ModelArenas& arenas;
  Optimizer& optimizer;
  Loss loss = {};
  // Index of the first stage that has trainable parameters, in a pipeline.
  int64_t first_trained_stage = 0;
};

/// A method of distributed training, which keeps the arenas of all ranks consistent.
/// Each rank has one strategy object.
class Strategy {
 public:
  Strategy(StrategyOptions options, const StrategyParts& parts)
      : options_(std::move(options)), parts_(parts) {}
  virtual ~Strategy() = default;

  /// Checks that the ranks' models match, and copies rank 0's parameters, buffers and
  /// optimizer state to the ranks that need them. In a pipeline, copies them from the
  /// first replica to the other replicas. If divides_state() is true, each rank keeps
  /// its part of the optimizer's state. Collective; call it after loading a checkpoint.
  virtual void start() = 0;

  /// Copies rank 0's parameters to ranks whose parameters have diverged. Collective.
  virtual void resync() {
    start();
  }

  /// Makes one optimizer step over the given micro-batches.
  ///
  /// All ranks make the same number of steps. A rank without data gets no batches but
  /// takes part in the collective operations.
  ///
  /// Returns the sums of the loss, its metric and the samples over this rank's batches.
  /// The sums are empty on a rank that computes no loss, except that an asynchronous
  /// parameter server returns the sums that workers sent.
  virtual StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) = 0;

  /// Returns the sums of one batch, as train_step(), but in evaluation mode and without
  /// gradients. A rank without data passes null and takes part in the collective
  /// operations.
  virtual StepSums evaluate_batch(const Batch* batch, const StepContext& context);

  /// Called after the last step of an epoch, before the evaluation. `last` is true if
  /// no step follows. If the evaluation ends the run, the trainer also calls
  /// end_epoch(true) after the evaluation. Collective.
  virtual void end_epoch(bool /*last*/) {}

  /// Returns the part of the data that this rank reads.
  virtual DataShard data_shard() const {
    return {parts_.comm.size(), parts_.comm.rank()};
  }
  /// Returns the relation between the ranks' parameters.
  virtual Consistency consistency() const = 0;

  /// Returns whether the ranks wait for each other in each step. If so, a collective
  /// operation in the middle of an epoch delays no rank.
  bool in_lockstep() const {
    return consistency() == Consistency::replicated ||
           consistency() == Consistency::sharded;
  }

  /// Returns whether all ranks waited for each other in the last step. If so, all ranks
  /// are at the same step, and a collective operation delays no rank.
  virtual bool ranks_have_met() const {
    return in_lockstep();
  }

  /// Returns whether train_step() waits for no other rank except a server.
  ///
  /// If true, ranks can receive a signal, such as SIGTERM, at different steps. After a
  /// signal, each rank calls leave_steps() before the next collective operation.
  virtual bool steps_alone() const {
    return false;
  }
  /// Ends this rank's steps of the epoch early. Other ranks then no longer wait for
  /// this rank's steps.
  virtual void leave_steps() {}

  /// Prepares parameters and buffers for an evaluation or a checkpoint, for example
  /// synchronizes buffers.
  virtual void before_evaluation() = 0;

  /// Makes the parameters complete on every rank until the next step. Collective.
  virtual void complete_parameters() {}

  /// Returns the state for a checkpoint. It is complete only at rank 0. The tensors may
  /// share memory with the run. If divides_state() is true, the optimizer's state is
  /// not collected; if data parallel divides parameters, they are complete only after
  /// complete_parameters(). Collective.
  virtual TrainingState collect_state() = 0;

  /// Returns whether each rank saves and loads a share of the optimizer's state.
  virtual bool divides_state() const {
    return false;
  }
  /// Returns whether ranks also save shares of the model.
  virtual bool divides_model() const {
    return false;
  }

  /// Calls `visit` with pieces of the state for a checkpoint. The pieces of all ranks
  /// together have each tensor once, and the shares of ranks have about equal sizes. If
  /// divides_state() is false, rank 0 visits the result of collect_state(). Ranks whose
  /// `may_visit` is false visit nothing; it is true on rank 0. Collective.
  virtual void visit_state(const StateVisitor& visit, bool /*may_visit*/ = true) {
    const auto state = collect_state();
    if (parts_.comm.rank() == 0) {
      visit(state);
    }
  }

  /// Returns the tensors into which a checkpoint is loaded. Call start() afterwards.
  virtual TrainingState state_to_load() {
    return local_state(parts_.arenas, parts_.optimizer);
  }

  /// Returns the state that only this rank has, such as local parameters. The
  /// checkpoint stores it in a separate file. Empty if this rank has no such state.
  ///
  /// When a run resumes, the trainer calls start(), loads the saved values into these
  /// tensors, and calls rank_state_loaded().
  virtual std::vector<NamedTensor> rank_state() {
    return {};
  }
  /// Called after values were loaded into the tensors of rank_state().
  virtual void rank_state_loaded() {}

  /// If consistency() is `sharded`, returns the group of the ranks that have the same
  /// part of the model as this rank, which may be a group of one. Otherwise returns
  /// null.
  virtual Communicator* replicas() {
    return nullptr;
  }

  /// Returns the communication statistics of the groups that this strategy made.
  virtual CommStats own_comm_stats() const {
    return {};
  }

  /// Returns the 2-norm of the gradients by which the last step updated the parameters,
  /// over the whole model, before clipping. Returns nullopt if this rank does not have
  /// these gradients. Collective.
  virtual std::optional<double> gradient_norm() {
    return std::nullopt;
  }

  /// Returns measurements for summary.json: a list of values for each name, for
  /// instance one value per stage. The result is complete only at rank 0. Collective.
  virtual std::map<std::string, std::vector<double>> measurements() {
    return {};
  }

 protected:
  const StrategyOptions options_;
  StrategyParts parts_;
};

/// Returns whether another rank updates this rank's parameters, as for workers of the
/// strategy parameter_server. If so, this rank needs no optimizer state.
bool updates_elsewhere(const StrategyOptions& options, const Communicator& comm);

/// Returns the strategy that options.kind selects.
///
/// If options.shard is `automatic`, uses `none`. (train/assembly.h
/// resolves `automatic` earlier.)
///
/// Throws ConfigError if the strategy cannot run with these parts.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts);

}  // namespace tandem
