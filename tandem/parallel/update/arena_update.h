#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// What strategies do with a whole arena in each step.

/// Sum of the squares of the gradients in this rank's arena; and its root, their
/// 2-norm. float64, no dimensions, where the gradients are.
at::Tensor own_gradient_squares(ModelArenas& arenas);
at::Tensor own_gradient_norm(ModelArenas& arenas);

/// Scales this rank's gradients down to options.clip_norm: `step.gradient_scale` on the
/// CPU, the gradients themselves on a device, without waiting for it. `norm` (float64,
/// no dimensions) is called only if clip_norm is set.
void clip(
    const StrategyOptions& options, ModelArenas& arenas, StepScalars& step,
    const std::function<at::Tensor()>& norm);

/// One pass of the optimizer over all trainable parameters; the executor is told.
void update_all(const StrategyParts& parts, const StepScalars& step);

/// The optimizer's state becomes rank 0's on every rank. Collective.
void broadcast_state(Communicator& comm, Optimizer& optimizer);

/// A step begins; the gradients are zero, or will be overwritten by its first backward.
void start_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches);

/// All parameters may have changed, frozen ones too.
void tell_executor(const StrategyParts& parts);

int64_t count_samples(const std::vector<Batch>& micro_batches);

/// This rank's gradients of all micro-batches, added up in the arena, each loss times
/// context.loss_weight. Returns what the executor found.
StepSums add_up_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches,
    const StepContext& context);

/// An optimizer step of a rank that trains by itself: on the mean (or sum) of the
/// loss over its own samples, no other rank involved. Clips at options.clip_norm.
///
/// `micro_batches`: at least one.
StepSums local_step(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context);

}  // namespace tandem
