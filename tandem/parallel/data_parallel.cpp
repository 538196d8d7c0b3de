#include <ATen/ops/zeros.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/parallel/grad_reducer.h"
#include "tandem/parallel/replicas.h"
#include "tandem/parallel/strategies.h"

namespace tandem {

namespace {

// All micro-batches but the last only add to the arena.
class NoSink : public GradientSink {
 public:
  void gradient_ready(size_t) override {}
};

// With a group of one this is the sequential strategy: every collective does
// nothing.
class DataParallel : public Strategy {
 public:
  DataParallel(const StrategyOptions& options, const StrategyParts& parts)
      : options_(options),
        parts_(parts),
        reducer_(
            parts.comm, parts.arenas.gradients(),
            plan_buckets(
                parts.arenas.gradients().layout(), options.sync, options.bucket_bytes),
            options.sync == SyncMode::overlap) {}

  void start() override {
    start_alike(parts_.comm, parts_.arenas, reducer_.buckets());
    // Frozen parameters came from rank 0 too.
    for (const auto& range : parts_.arenas.parameters().layout().ranges()) {
      parts_.executor.parameters_changed(range);
    }
  }

  at::Tensor train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) override {
    parts_.arenas.gradients().zero();
    StepContext weighted = context;
    weighted.loss_weight = weight_of(micro_batches);
    auto sums = at::zeros({3}, at::kDouble);
    for (size_t i = 0; i < micro_batches.size(); ++i) {
      const bool last = i + 1 == micro_batches.size();
      sums += parts_.executor.forward(0, micro_batches[i], weighted).sums;
      if (last) {
        reducer_.begin(context.trace);
      }
      GradientSink& sink = last ? static_cast<GradientSink&>(reducer_) : no_sink_;
      parts_.executor.backward(0, {}, weighted, sink);
    }
    reducer_.finish();
    update(context);
    return sums;
  }

  at::Tensor evaluate_batch(const Batch& batch, const StepContext& context) override {
    return parts_.executor.forward(0, batch, context).sums;
  }

  DataShard data_shard() const override {
    return {parts_.comm.size(), parts_.comm.rank()};
  }

  Consistency consistency() const override {
    return Consistency::replicated;
  }

  void before_evaluation() override {
    switch (options_.buffers) {
      case BufferSync::broadcast:
        broadcast_arena(parts_.comm, parts_.arenas.buffers());
        break;
      case BufferSync::average:
        average_buffers();
        break;
      case BufferSync::off:
        break;
    }
  }

  TrainingState collect_state() override {
    before_evaluation();
    return local_state(parts_.arenas, parts_.optimizer);
  }

  std::vector<NamedTensor> rank_state() override {
    return {};
  }

  double global_norm() override {
    double squares = 0;
    for (const auto& range : trainable()) {
      const double norm = parts_.arenas.gradients().slice(range).norm().item<double>();
      squares += norm * norm;
    }
    return std::sqrt(squares);
  }

 private:
  std::vector<ArenaRange> trainable() const {
    return parts_.arenas.parameters().layout().trainable_ranges();
  }

  double weight_of(const std::vector<Batch>& micro_batches) const {
    int64_t global_count = 0;
    for (const auto& batch : micro_batches) {
      global_count += batch.global_count;
    }
    const auto& targets = micro_batches.front().targets;
    return loss_weight(options_.loss, global_count, targets.numel() / targets.size(0));
  }

  void update(const StepContext& context) {
    UpdateContext step{context.lr, 1, context.step + 1};
    if (options_.clip_norm > 0) {
      step.gradient_scale = std::min(1.0, options_.clip_norm / (global_norm() + 1e-6));
    }
    for (const auto& range : trainable()) {
      parts_.optimizer.update(range, step);
      parts_.executor.parameters_changed(range);
    }
  }

  // Means of the real-valued buffers; counters are equal already.
  void average_buffers() {
    Arena& buffers = parts_.arenas.buffers();
    for (const auto& range : buffers.layout().ranges()) {
      auto slice = buffers.slice(range);
      if (at::isFloatingType(slice.scalar_type())) {
        parts_.comm.all_reduce(slice, ReduceOp::sum, "buffers")->wait();
        slice.div_(parts_.comm.size());
      }
    }
  }

  StrategyOptions options_;
  StrategyParts parts_;
  GradReducer reducer_;
  NoSink no_sink_;
};

}  // namespace

std::unique_ptr<Strategy> make_data_parallel(
    const StrategyOptions& options, const StrategyParts& parts) {
  return std::make_unique<DataParallel>(options, parts);
}

std::unique_ptr<Strategy> make_sequential(
    const StrategyOptions& options, const StrategyParts& parts) {
  if (parts.comm.size() > 1) {
    throw ConfigError(
        "[parallel] strategy sequential is for one rank, but there are " +
        std::to_string(parts.comm.size()) +
        "; use --strategy data_parallel or --nproc 1");
  }
  return make_data_parallel(options, parts);
}

}  // namespace tandem
