#pragma once

#include <cstdint>

#include "tandem/core/updates/loss_scale.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

/// What GradScaler (optim/grad_scaler.h) keeps, on the device; the first three are its
/// state in a checkpoint.
struct ScalerState {
  float* scale;
  int64_t* growth_tracker;
  int64_t* skipped_steps;
  // Not 0: a gradient of this step was not finite. 0 before the first step.
  int64_t* overflowed;
};

/// Divides gradients by the scale, with the bits of GradScaler::unscale(), and notes in
/// `overflowed` when one was not finite. T: float or double. One pass, 8 bytes for a
/// float; a block takes kUnscaleTile elements.
constexpr int64_t kUnscaleTile = 1024;
template <typename T>
void unscale(int64_t count, T* gradients, const ScalerState& state, Stream stream);

/// After all gradients were unscaled and before the update: what GradScaler::unscale()
/// does last. Sets `left_out` for this step, takes those that were left out off `step`,
/// and sets the scale of the step to come. One thread; `overflowed` is 0 again.
void update_scaler(
    const LossScaleRule& rule, const ScalerState& state, StepScalars* scalars,
    Stream stream);

}  // namespace tandem::cuda
