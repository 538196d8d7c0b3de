#include <memory>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/comm/exchange.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/reduce/grad_reducer.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/arena_update.h"
#include "tandem/parallel/update/shard_groups.h"
#include "tandem/parallel/update/sharded_parameters.h"
#include "tandem/parallel/update/update_rule.h"

namespace tandem {

namespace {

// For a mean loss, the loss weight already divides gradients by the number of samples
// of all ranks, so the wire format needs no scale.
WireFormat wire_of(const StrategyOptions& options, const StrategyParts& parts) {
  const bool sums = parts.loss.reduction == Reduction::sum;
  return {options.comm_hook, sums ? 1.0 / parts.comm.size() : 1.0};
}

// Data parallelism. In a group of one rank, collectives do nothing, so the same class
// implements the strategy `sequential`.
class DataParallel : public Strategy {
 public:
  DataParallel(const StrategyOptions& options, const StrategyParts& parts)
      : Strategy(options, parts),
        groups_(
            options.shard > Sharding::none ? options.shard_group
                                           : StrategyOptions::kAllRanks,
            parts.comm),
        update_(options.shard, groups_.shard(), parts),
        reducer_(
            groups_.shard(), parts.arenas.gradients(),
            options.sync == SyncMode::overlap, wire_of(options, parts),
            update_.sum_goes_to(), groups_.replicas()) {
    if (options.shard == Sharding::parameters) {
      parameters_ = std::make_unique<ShardedParameters>(
          groups_.shard(), parts.arenas.parameters());
      alone_ = make_single_communicator();
    }
  }

  void start() override {
    if (parameters_) {
      check_alike(parts_.comm, parts_.arenas);
      if (!std::exchange(loaded_, false)) {
        parameters_->distribute(parts_.comm);
      }
      broadcast_arena(parts_.comm, parts_.arenas.buffers());
    } else {
      start_alike(parts_.comm, parts_.arenas);
    }
    update_.start();
    // Frozen parameters have also changed.
    notify_executor(parts_);
  }

  StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) override {
    start_gradients(parts_, micro_batches, context.trace);
    StepContext weighted =
        with_loss_weight(parts_, micro_batches, LossMean::global_batch, context);
    if (const GradScaler* scaler = parts_.optimizer.scaler()) {
      weighted.loss_scale = scaler->scale();
    }
    StepSums sums;
    reducer_.begin(context.trace);
    const size_t count = num_passes(micro_batches.size());
    for (size_t i = 0; i < count; ++i) {
      GradReducer* const reducer = i + 1 == count ? &reducer_ : nullptr;
      if (i < micro_batches.size()) {
        sums += train_pass(micro_batches[i], weighted, reducer);
      } else {
        parameters_->pass_without_batch(Pass::training, reducer);
      }
    }
    reducer_.finish();
    update(context);
    return sums;
  }

  StepSums evaluate_batch(const Batch* batch, const StepContext& context) override {
    const auto evaluate = [&] { return Strategy::evaluate_batch(batch, context); };
    if (!parameters_) {
      return evaluate();
    }
    if (batch == nullptr) {
      parameters_->pass_without_batch(Pass::evaluation, nullptr);
      return {};
    }
    return parameters_->pass(Pass::evaluation, nullptr, evaluate);
  }

  Consistency consistency() const override {
    return parameters_ ? Consistency::sharded : Consistency::replicated;
  }

  Communicator* replicas() override {
    return alone_.get();
  }

  void before_evaluation() override {
    sync_buffers(parts_.comm, parts_.arenas, options_.buffers);
  }

  void complete_parameters() override {
    if (parameters_) {
      parameters_->gather();
    }
  }

  TrainingState collect_state() override {
    before_evaluation();
    return local_state(parts_.arenas, parts_.optimizer);
  }

  bool divides_state() const override {
    return update_.divides_state();
  }
  bool divides_model() const override {
    return parameters_ != nullptr;
  }

  void visit_state(const StateVisitor& visit, bool may_visit) override {
    if (!update_.divides_state()) {
      Strategy::visit_state(visit, may_visit);
      return;
    }
    before_evaluation();
    // Other shard groups are replicas of the first.
    if (groups_.index() == 0) {
      update_.visit_state(visit, may_visit);
    }
  }

  TrainingState state_to_load() override {
    if (parameters_) {
      parameters_->release();
      loaded_ = true;
    }
    return update_.state_to_load();
  }

  std::optional<double> gradient_norm() override {
    return (norm_.defined() ? norm_ : update_.gradient_squares().sqrt()).item<double>();
  }

 private:
  using Pass = ShardedParameters::Pass;

  // Returns the number of passes of this step. If parameters are sharded, all ranks
  // make the same number of passes, even ranks with fewer batches.
  size_t num_passes(size_t num_batches) {
    return parameters_ == nullptr
               ? num_batches
               : static_cast<size_t>(reduce_count(
                     static_cast<int64_t>(num_batches), ReduceOp::max,
                     "number of passes", parts_.comm));
  }

  // Runs forward and backward of a batch. `reducer` is null if gradients are only
  // accumulated.
  StepSums train_pass(
      const Batch& batch, const StepContext& context, GradReducer* reducer) {
    const auto pass = [&] {
      const auto sums = parts_.executor.forward(0, batch, context).sums;
      if (parameters_) {
        parameters_->end_forward();
      }
      if (reducer != nullptr) {
        parts_.executor.backward(0, {}, context, *reducer);
        reducer->warn_of_unused();
      } else {
        parts_.executor.backward(0, {}, context, no_sink_);
      }
      return sums;
    };
    return parameters_ ? parameters_->pass(Pass::training, reducer, pass) : pass();
  }

  void update(const StepContext& context) {
    const TraceSpan span(context.trace, "update", "update");
    StepScalars step = scalars_of(context);
    update_.unscale(step);
    norm_ = clip(options_, parts_.arenas, step, [this] {
      return update_.gradient_squares().sqrt();
    });
    update_.update(step);
  }

  ShardGroups groups_;
  UpdateRule update_;
  GradReducer reducer_;
  // Null unless the parameters are sharded.
  std::unique_ptr<ShardedParameters> parameters_;
  // With sharded parameters, the group of this rank, which alone has its part.
  std::unique_ptr<Communicator> alone_;
  // True if each rank has loaded its part of the parameters.
  bool loaded_ = false;
  // Norm that clipping computed in the last step; undefined without clipping.
  at::Tensor norm_;
  NoSink no_sink_;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::data_parallel>, const StrategyOptions& options,
    const StrategyParts& parts) {
  return std::make_unique<DataParallel>(options, parts);
}

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::sequential>, const StrategyOptions& options,
    const StrategyParts& parts) {
  if (parts.comm.size() > 1) {
    throw ConfigError(
        "[parallel] strategy sequential has " + std::to_string(parts.comm.size()) +
        " ranks, expected one rank; use --strategy data_parallel or --nproc 1");
  }
  return std::make_unique<DataParallel>(options, parts);
}

}  // namespace tandem
