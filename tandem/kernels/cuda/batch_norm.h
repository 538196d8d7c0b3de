#pragma once

#include <cstdint>

#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

// Batch norm over the channels of images, as PyTorch's batch_norm computes it: in
// training by the mean and the biased variance of the batch, in evaluation by the
// running ones; a ReLU may follow. T: float or double. Images are NCHW. All arrays are
// on the device.
//
// A channel's values, images x area of them, are divided into parts of 2048 or more, 64
// parts at most. A block of 256 threads takes one part: in one kernel it sums it up, in
// the next it puts all parts' sums together and writes its part. Sums are of double
// precision, in an order that depends on the shape only: the same bits twice. Variances
// are of differences from a part's own mean (T. Chan, G. Golub, R. LeVeque, "Updating
// Formulae", 1979), so a large mean costs no digits.
//
// Forward reads an input three times, twice of it from the cache, and writes the
// output; backward reads two arrays twice and writes one.
//
// Throws ConfigError for a shape that check_batch_norm() refuses.

struct BatchNormShape {
  int64_t images = 0;
  int64_t channels = 0;
  // Pixels of a channel.
  int64_t area = 0;

  constexpr int64_t values() const {
    return images * area;
  }
};

/// Throws ConfigError unless there are channels and pixels, and fewer than 2^31 - 2^16
/// values.
void check_batch_norm(const BatchNormShape& shape);

/// A layer's parameters, one of each for a channel.
template <typename T>
struct BatchNormParameters {
  const T* weight = nullptr;
  const T* bias = nullptr;
  double epsilon = 1e-5;
  bool relu = false;
};

/// The averages of batches, which training moves on and evaluation takes.
template <typename T>
struct RunningStatistics {
  T* mean = nullptr;
  // Of unbiased variances.
  T* variance = nullptr;
  // Counts batches.
  int64_t* batches = nullptr;
  // The share of the batch at hand.
  double momentum = 0.1;
};

/// How many doubles a workspace of the two functions below has.
int64_t batch_norm_workspace(const BatchNormShape& shape);

/// `saved`: two doubles for each channel, its mean and 1 / its standard deviation, for
/// backward. A batch without values moves nothing but the count of batches. Two
/// kernels.
template <typename T>
void batch_norm(
    const BatchNormShape& shape, const BatchNormParameters<T>& parameters, const T* in,
    const RunningStatistics<T>& running, double* workspace, double* saved, T* out,
    Stream stream);

/// In evaluation. One kernel.
template <typename T>
void batch_norm_evaluation(
    const BatchNormShape& shape, const BatchNormParameters<T>& parameters, const T* in,
    const T* running_mean, const T* running_variance, T* out, Stream stream);

/// Where gradients go.
template <typename T>
struct BatchNormGradients {
  // Null: nobody wants it.
  T* in = nullptr;
  T* weight = nullptr;
  T* bias = nullptr;
  // Adds those of weight and bias to what is there.
  bool accumulate = false;
};

/// The gradients of a forward in training. `in`, `saved`: the forward's; `out`: what it
/// wrote with `relu`, or null without. Two kernels.
template <typename T>
void batch_norm_backward(
    const BatchNormShape& shape, const T* weight, const T* in, const double* saved,
    const T* grad_out, const T* out, double* workspace,
    const BatchNormGradients<T>& gradients, Stream stream);

}  // namespace tandem::cuda
