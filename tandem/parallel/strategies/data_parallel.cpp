#include "tandem/base/error.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/reduce/grad_reducer.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/arena_update.h"
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
        reducer_(
            parts.comm, parts.arenas.gradients(),
            plan_buckets(
                parts.arenas.gradients().layout(), options.sync, options.bucket_bytes),
            options.sync == SyncMode::overlap, wire_of(options, parts)),
        update_(options.optimizer_state, parts.comm, parts) {}

  void start() override {
    start_alike(parts_.comm, parts_.arenas, reducer_.buckets());
    update_.start();
    // start_alike() also changed frozen parameters.
    notify_executor(parts_);
  }

  void resync() override {
    update_.collect_state();
    start();
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
    if (micro_batches.empty()) {
      reducer_.begin(context.trace);
    }
    for (size_t i = 0; i < micro_batches.size(); ++i) {
      const bool last = i + 1 == micro_batches.size();
      sums += parts_.executor.forward(0, micro_batches[i], weighted).sums;
      if (last) {
        reducer_.begin(context.trace);
      }
      GradientSink& sink = last ? static_cast<GradientSink&>(reducer_) : no_sink_;
      parts_.executor.backward(0, {}, weighted, sink);
      if (last) {
        reducer_.warn_of_unused();
      }
    }
    reducer_.finish();
    update(context);
    return sums;
  }

  Consistency consistency() const override {
    return Consistency::replicated;
  }

  void before_evaluation() override {
    sync_buffers(parts_.comm, parts_.arenas, options_.buffers);
  }

  TrainingState collect_state() override {
    before_evaluation();
    update_.collect_state();
    return local_state(parts_.arenas, parts_.optimizer);
  }

  std::optional<double> gradient_norm() override {
    return (norm_.defined() ? norm_ : own_gradient_norm(parts_.arenas)).item<double>();
  }

 private:
  // All ranks have equal gradients here, so their GradScalers skip the same steps.
  void update(const StepContext& context) {
    const TraceSpan span(context.trace, "update", "update");
    StepScalars step = scalars_of(context);
    if (GradScaler* scaler = parts_.optimizer.scaler()) {
      scaler->unscale(parts_.arenas.gradients(), step);
    }
    norm_ = clip(options_, parts_.arenas, step, [this] {
      return own_gradient_norm(parts_.arenas);
    });
    update_.update(step);
  }

  GradReducer reducer_;
  UpdateRule update_;
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
