#pragma once

#include <cstdint>

#include "tandem/core/step_scalars.h"
#include "tandem/core/updates/adadelta.h"
#include "tandem/core/updates/adam.h"
#include "tandem/core/updates/sgd.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

// One step of an optimizer over `count` neighbouring elements of arenas that are on the
// device: the elements of one parameter group. T: float or double. Bits are those of
// optim/, which computes each element with the same functions (core/updates).
//
// A block updates a tile of kUpdateTile elements, each of which is read and written
// once: 12 bytes for a float, and 8 for each state. What holds for the step is read
// from `scalars`, on the device; where left_out is set, nothing changes.

constexpr int64_t kUpdateTile = 1024;

/// `momentum_buffer`: null without momentum.
template <typename T>
void update_sgd(
    int64_t count, T* param, const T* grad, T* momentum_buffer,
    const SgdSettings& settings, const GroupConstants& group,
    const StepScalars* scalars, Stream stream);

/// `max_exp_avg_sq`: null without amsgrad. A block's first thread computes the powers
/// of beta for it.
template <typename T>
void update_adam(
    int64_t count, T* param, const T* grad, T* exp_avg, T* exp_avg_sq,
    T* max_exp_avg_sq, const AdamSettings& settings, const GroupConstants& group,
    const StepScalars* scalars, Stream stream);

template <typename T>
void update_adadelta(
    int64_t count, T* param, const T* grad, T* square_avg, T* acc_delta,
    const AdadeltaSettings& settings, const GroupConstants& group,
    const StepScalars* scalars, Stream stream);

}  // namespace tandem::cuda
