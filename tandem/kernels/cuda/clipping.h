#pragma once

#include <cstdint>

#include "tandem/core/step_scalars.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

// Clipping by the 2-norm of all gradients, as parallel/update/arena_update.h does it:
// each part's squares are added up, between ranks too where parts differ, and then the
// factor follows. Sums are float64, in an order that depends on `count` only.

/// A block adds up a tile of this many squares.
constexpr int64_t kSquaresTile = 4096;

/// How many numbers of float64 add_squares() works with.
constexpr int64_t square_sums(int64_t count) {
  return (count + kSquaresTile - 1) / kSquaresTile;
}

/// Adds the squares of `count` gradients to `*squares`. `scratch`: square_sums(count)
/// numbers. T: float or double. Two kernels: one reads all, a block the blocks' sums.
template <typename T>
void add_squares(
    int64_t count, const T* gradients, double* scratch, double* squares, Stream stream);

/// gradient_scale = min(1, clip_norm / (the root of `*squares` + 1e-6)). One thread;
/// `*squares` is 0 again.
void clip_gradients(
    double clip_norm, double* squares, StepScalars* scalars, Stream stream);

}  // namespace tandem::cuda
