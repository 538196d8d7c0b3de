#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

// Parts of a training step that several strategies have in common.

/// Returns the sum of the squares of the elements in `ranges` as two float64 values on
/// the arena's device. Their sum is the result; the second value is the error of the
/// first. On the CPU, the bits of the result do not depend on the order of additions,
/// and so not on the ranges, the instruction set or the number of threads, except in
/// fewer than one of 10^9 cases.
at::Tensor squares_of(const Arena& arena, const std::vector<ArenaRange>& ranges);

/// Returns squares_of() over the ranges of all ranks, of which `own` are this rank's.
/// Collective.
at::Tensor squares_of_parts(
    Communicator& comm, const Arena& arena, const std::vector<ArenaRange>& own);

/// Returns the factor by which gradients with a norm are multiplied, so that their norm
/// is at most `max_norm`; 1 if it is below, or NaN. Both are float64 scalar tensors on
/// the norm's device. Source: torch/nn/utils/clip_grad.py.
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

/// Returns the 2-norm of this rank's gradients, from squares_of(): a float64 scalar
/// tensor on the gradients' device.
at::Tensor own_gradient_norm(ModelArenas& arenas);

/// Scales this rank's gradients down if their norm exceeds options.clip_norm.
///
/// On the CPU, sets `step.gradient_scale`. On other devices, multiplies the gradients
/// without waiting for the device. `norm` returns the norm as a float64 scalar tensor.
/// clip() calls `norm` only if clip_norm is not 0. Returns this norm, or an undefined
/// tensor if clip_norm is 0.
at::Tensor clip(
    const StrategyOptions& options, ModelArenas& arenas, StepScalars& step,
    const std::function<at::Tensor()>& norm);

/// Updates all trainable parameters and calls the executor's parameters_changed().
void update_all(const StrategyParts& parts, const StepScalars& step);

/// Broadcasts rank 0's optimizer state to all ranks. Collective.
void broadcast_state(Communicator& comm, Optimizer& optimizer);

/// Prepares the gradients for a step: calls the executor's zero_gradients() if there
/// are micro-batches, otherwise sets the gradients to zero. `trace` may be null.
void start_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches, Trace* trace);

/// Calls the executor's parameters_changed() for all parameters, including frozen
/// parameters.
void notify_executor(const StrategyParts& parts);

/// Returns the number of samples in the micro-batches.
int64_t count_samples(const std::vector<Batch>& micro_batches);

/// Returns the number of samples in the micro-batches that count in the loss. If the
/// targets are classes, each target counts as a sample.
int64_t count_in_loss(const std::vector<Batch>& micro_batches);

/// Samples over which a loss takes its mean: the samples of this rank, or those of the
/// step on all ranks.
enum class LossMean { own_samples, global_batch };

/// Returns `context` with the factor of the losses of the micro-batches, which may be
/// empty (loss_weight()).
StepContext with_loss_weight(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches, LossMean mean,
    StepContext context);

/// Runs forward and backward of all micro-batches, with losses multiplied by
/// context.loss_weight, and accumulates their gradients in the arena. Returns the sums
/// of the loss, its metric and the samples.
StepSums add_up_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches,
    const StepContext& context);

/// Makes one optimizer step on the mean (or sum) of the loss over this rank's samples.
/// Exchanges no data with other ranks. Clips gradients at options.clip_norm.
///
/// `micro_batches` has at least one element.
StepSums local_step(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context);

}  // namespace tandem
