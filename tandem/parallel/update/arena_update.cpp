#include "tandem/parallel/update/arena_update.h"

#include <algorithm>
#include <cmath>

#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

double own_gradient_squares(ModelArenas& arenas) {
  double squares = 0;
  for (const auto& range : arenas.gradients().layout().trainable_ranges()) {
    const double norm = arenas.gradients().slice(range).norm().item<double>();
    squares += norm * norm;
  }
  return squares;
}

double own_gradient_norm(ModelArenas& arenas) {
  return std::sqrt(own_gradient_squares(arenas));
}

UpdateContext clipped(
    const StrategyOptions& options, UpdateContext step,
    const std::function<double()>& norm) {
  if (options.clip_norm > 0) {
    step.gradient_scale = std::min(1.0, options.clip_norm / (norm() + 1e-6));
  }
  return step;
}

void update_all(const StrategyParts& parts, const UpdateContext& step) {
  for (const auto& range : parts.arenas.parameters().layout().trainable_ranges()) {
    parts.optimizer.update(range, step);
    parts.executor.parameters_changed(range);
  }
}

void clip_and_update(
    const StrategyOptions& options, const StrategyParts& parts,
    const UpdateContext& step, const std::function<double()>& norm) {
  update_all(parts, clipped(options, step, norm));
}

void broadcast_state(Communicator& comm, Optimizer& optimizer) {
  for (Arena* arena : optimizer.state()) {
    broadcast_arena(comm, *arena);
  }
}

void start_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches) {
  if (micro_batches.empty()) {
    parts.arenas.gradients().zero();
  } else {
    parts.executor.zero_gradients();
  }
}

void tell_executor(const StrategyParts& parts) {
  for (const auto& range : parts.arenas.parameters().layout().ranges()) {
    parts.executor.parameters_changed(range);
  }
}

}  // namespace tandem
