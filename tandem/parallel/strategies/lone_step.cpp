#include "tandem/parallel/strategies/lone_step.h"

#include "tandem/parallel/update/arena_update.h"

namespace tandem {

int64_t count_samples(const std::vector<Batch>& micro_batches) {
  int64_t count = 0;
  for (const auto& batch : micro_batches) {
    count += batch.count();
  }
  return count;
}

StepSums add_up_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches,
    const StepContext& context, const DeviceStep* step) {
  start_gradients(parts, micro_batches);
  StepSums sums;
  NoSink no_sink;
  StepContext of_batch = context;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    of_batch.record = step == nullptr ? at::Tensor() : step->record(i);
    sums += parts.executor.forward(0, micro_batches[i], of_batch).sums;
    parts.executor.backward(0, {}, of_batch, no_sink);
  }
  return sums;
}

StepSums step_alone(
    const StrategyOptions& options, const StrategyParts& parts, DeviceStep& step,
    const std::vector<Batch>& micro_batches, const StepContext& context) {
  StepContext weighted = context;
  weighted.loss_weight = loss_weight(
      parts.loss, count_samples(micro_batches), micro_batches.front().targets);
  step.begin(weighted, micro_batches);
  const auto sums = add_up_gradients(parts, micro_batches, weighted, &step);
  clip(options, step, [&] { return own_gradient_norm(parts.arenas); });
  update_all(parts, step.scalars());
  return sums;
}

}  // namespace tandem
