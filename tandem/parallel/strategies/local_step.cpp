#include "tandem/parallel/strategies/local_step.h"

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
    const StepContext& context) {
  start_gradients(parts, micro_batches);
  StepSums sums;
  NoSink no_sink;
  for (const auto& batch : micro_batches) {
    sums += parts.executor.forward(0, batch, context).sums;
    parts.executor.backward(0, {}, context, no_sink);
  }
  return sums;
}

StepSums local_step(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context) {
  StepContext weighted = context;
  weighted.loss_weight = loss_weight(
      parts.loss, count_samples(micro_batches), micro_batches.front().targets);
  const auto sums = add_up_gradients(parts, micro_batches, weighted);
  StepScalars step = scalars_of(context);
  clip(options, parts.arenas, step, [&] { return own_gradient_norm(parts.arenas); });
  update_all(parts, step);
  return sums;
}

}  // namespace tandem
