#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// What strategies do with a whole arena in each step.

/// Sum of the squares of the gradients in this rank's arena; and its root, their
/// 2-norm.
double own_gradient_squares(ModelArenas& arenas);
double own_gradient_norm(ModelArenas& arenas);

/// `step` with the gradients scaled down to options.clip_norm; `norm` is called only
/// when there is one.
UpdateContext clipped(
    const StrategyOptions& options, UpdateContext step,
    const std::function<double()>& norm);

/// One pass of the optimizer over all trainable parameters; the executor is told. And
/// the same, clipped.
void update_all(const StrategyParts& parts, const UpdateContext& step);
void clip_and_update(
    const StrategyOptions& options, const StrategyParts& parts,
    const UpdateContext& step, const std::function<double()>& norm);

/// The optimizer's state becomes rank 0's on every rank. Collective.
void broadcast_state(Communicator& comm, Optimizer& optimizer);

/// A step begins; the gradients are zero, or will be overwritten by its first backward.
void start_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches);

/// All parameters may have changed, frozen ones too.
void tell_executor(const StrategyParts& parts);

}  // namespace tandem
