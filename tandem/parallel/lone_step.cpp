#include "tandem/parallel/lone_step.h"

#include <ATen/ops/zeros.h>

#include "tandem/parallel/arena_update.h"

namespace tandem {

namespace {

double weight_of(const Loss& loss, const std::vector<Batch>& micro_batches) {
  int64_t count = 0;
  for (const auto& batch : micro_batches) {
    count += batch.count();
  }
  const auto& targets = micro_batches.front().targets;
  return loss_weight(loss, count, targets.numel() / targets.size(0));
}

}  // namespace

at::Tensor step_alone(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context) {
  start_gradients(parts, micro_batches);
  StepContext weighted = context;
  weighted.loss_weight = weight_of(options.loss, micro_batches);
  auto sums = at::zeros({3}, at::kDouble);
  NoSink no_sink;
  for (const auto& batch : micro_batches) {
    sums += parts.executor.forward(0, batch, weighted).sums;
    parts.executor.backward(0, {}, weighted, no_sink);
  }
  clip_and_update(options, parts, {context.lr, 1, context.step + 1}, [&] {
    return own_gradient_norm(parts.arenas);
  });
  return sums;
}

}  // namespace tandem
