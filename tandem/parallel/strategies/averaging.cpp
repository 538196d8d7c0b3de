#include <ATen/ops/full.h>

#include <optional>
#include <utility>

#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/arena_update.h"
#include "tandem/parallel/update/outer_step.h"

namespace tandem {

namespace {

// Parameter averaging (Zinkevich et al., "Parallelized stochastic gradient descent",
// NIPS 2010). If ranks average every few steps, this is local SGD (Stich, ICLR 2019).
// Each rank makes steps on the mean loss over its own samples, with its own optimizer
// state. With an outer optimizer, this is DiLoCo (OuterStep).
//
// An evaluation or a checkpoint between two averages uses the average of all ranks. The
// next step restores this rank's local values.
class Averaging : public Strategy {
 public:
  Averaging(const StrategyOptions& options, const StrategyParts& parts)
      : Strategy(options, parts), equal_(at::full({1}, 1, at::kLong)) {
    if (options.outer_optimizer == OuterOptimizer::nesterov) {
      outer_.emplace(
          parts.arenas.parameters(), options.outer_lr, options.outer_momentum);
    }
  }

  void start() override {
    own_.clear();
    start_alike(parts_.comm, parts_.arenas);
    broadcast_state(parts_.comm, parts_.optimizer);
    tell();
    equal_.fill_(1);
  }

  StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) override {
    restore_own_state();
    if (outer_) {
      outer_->begin();
    }
    epoch_ended_ = false;
    // Set even if this rank has no samples, because other ranks' parameters change.
    equal_.fill_(0);
    StepSums sums;
    if (!micro_batches.empty()) {
      sums = local_step(options_, parts_, micro_batches, context);
    }
    const int64_t steps = options_.average_every;
    if (steps > 0 && (context.step + 1) % steps == 0) {
      const TraceSpan span(context.trace, "update", "average");
      average();
    }
    return sums;
  }

  void end_epoch(bool last) override {
    // Averages at most once, because the rounded mean of equal numbers may differ from
    // these numbers, and since an outer step would use its momentum again.
    const bool again = std::exchange(epoch_ended_, true) || outer_;
    const bool done = again && are_equal();
    if (!done && (last || options_.average_every == StrategyOptions::kEveryEpoch)) {
      restore_own_state();
      average();
    }
  }

  Consistency consistency() const override {
    return Consistency::equal_between_syncs;
  }

  bool steps_alone() const override {
    return options_.average_every < 1;
  }

  bool ranks_have_met() const override {
    return are_equal();
  }

  void before_evaluation() override {
    if (changed_outside_) {
      tell();
    }
    if (are_equal() || !own_.empty()) {
      return;
    }
    for (const auto& [name, tensor] : parts_.arenas.state()) {
      own_.push_back({name, tensor.detach().clone()});
    }
    take_mean();
  }

  // The checkpoint gets the optimizer state of rank 0.
  TrainingState collect_state() override {
    before_evaluation();
    return state_to_load();
  }

  TrainingState state_to_load() override {
    auto state = Strategy::state_to_load();
    if (outer_) {
      const auto outer = outer_->state();
      state.optimizer.insert(state.optimizer.end(), outer.begin(), outer.end());
    }
    return state;
  }

  std::vector<NamedTensor> rank_state() override {
    auto state = local_state(parts_.arenas, parts_.optimizer);
    auto all = own_.empty() ? state.model : own_;
    all.insert(all.end(), state.optimizer.begin(), state.optimizer.end());
    all.push_back({"averaging/equal", equal_});
    return all;
  }

  void rank_state_loaded() override {
    changed_outside_ = true;
  }

 private:
  bool are_equal() const {
    return equal_.item<int64_t>() != 0;
  }

  void average() {
    take_mean();
    if (outer_) {
      outer_->step();
      tell();
    }
    equal_.fill_(1);
  }

  void take_mean() {
    average_state(
        parts_.comm, parts_.arenas, options_.buffers != BufferSync::off,
        options_.average_every == StrategyOptions::kAtTheEnd ? SumAt::first_rank
                                                             : SumAt::all_ranks);
    tell();
  }

  void restore_own_state() {
    if (!own_.empty()) {
      const auto state = parts_.arenas.state();
      for (size_t i = 0; i < state.size(); ++i) {
        state[i].tensor.detach().copy_(own_[i].tensor);
      }
      own_.clear();
      changed_outside_ = true;
    }
    if (changed_outside_) {
      tell();
    }
  }

  void tell() {
    notify_executor(parts_);
    changed_outside_ = false;
  }

  // 1 if all ranks have equal parameters and buffers, otherwise 0. The value is the
  // same on all ranks.
  at::Tensor equal_;
  // This rank's local parameters and buffers while the arenas contain the average.
  std::vector<NamedTensor> own_;
  std::optional<OuterStep> outer_;
  bool changed_outside_ = false;
  bool epoch_ended_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::averaging>, const StrategyOptions& options,
    const StrategyParts& parts) {
  return std::make_unique<Averaging>(options, parts);
}

}  // namespace tandem
