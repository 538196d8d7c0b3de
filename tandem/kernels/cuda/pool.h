#pragma once

#include <cstdint>

#include "tandem/kernels/cuda/relu_and_dropout.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

// What stands behind a convolution: ReLU, the largest of each 2 x 2 values (PyTorch's
// max_pool2d(2): a last odd row or column is left out) and dropout by position, in one
// kernel, with the values of one after the other. T: float or double. All arrays are on
// the device.
//
// A thread computes eight outputs, 16 apart, about which one block of Philox decides
// (dropout.h). For an output of float32 forward reads 16 bytes and writes 4; backward
// reads 20 and writes 16.

struct PoolShape {
  int64_t images = 0;
  int64_t channels = 0;
  // Of the input, 2 at least.
  int64_t height = 0;
  int64_t width = 0;

  // Outputs of an image.
  constexpr int64_t outputs() const {
    return channels * (height / 2) * (width / 2);
  }
};

/// In place of the number of a window's largest value, 0 to 3 row by row: its gradient
/// goes nowhere, since ReLU or dropout took it.
constexpr uint8_t kNoneOfWindow = 4;

/// Throws ConfigError for images below 2 x 2, or of 2^31 values; so do the others.
void check_pool(const PoolShape& shape);

/// `behind`: a ReLU before the pool is the same as one behind it. `in`: images x
/// channels x height x width; `out`: images x channels x height / 2 x width / 2.
template <typename T>
void max_pool(
    const PoolShape& shape, const ReluAndDropout& behind, const T* in, T* out,
    Stream stream);

/// The gradient of `in`, all of it: 0 where a value was not the first of its window's
/// largest, or lost by ReLU or dropout. `in`: the forward's.
template <typename T>
void max_pool_backward(
    const PoolShape& shape, const ReluAndDropout& behind, const T* in,
    const T* grad_out, T* grad_in, Stream stream);

/// The same of a forward that wrote no input, but for each output the number of its
/// window's largest value, or kNoneOfWindow (convolution_and_pool()). `scale`: of the
/// dropout behind, or 1.
template <typename T>
void max_pool_backward(
    const PoolShape& shape, const uint8_t* largest, double scale, const T* grad_out,
    T* grad_in, Stream stream);

}  // namespace tandem::cuda
