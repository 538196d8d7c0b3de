#pragma once

#include <cstdint>

#include "tandem/core/batch_place.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

// Dropout by position, with the numbers and bits of model/dropout.h. All arrays are
// `num_samples` x `elements`, on the device, as is `place`; p: from 0 to less than 1,
// checked by the caller; `layer` says which of the model's.
//
// A thread computes one block of Philox, which decides about eight elements, 16 apart:
// so sixteen threads write 16 neighbours at a time.

/// 0 with probability p, else 1 / (1 - p). T: float or double.
template <typename T>
void dropout_mask(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, T* mask, Stream stream);

/// The same as bytes, 1 where the mask is not 0.
void dropout_keep(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, uint8_t* keep, Stream stream);

/// out = in times the mask, which is nowhere; backward is the same with gradients. `in`
/// and `out` may be the same. T: float or double.
template <typename T>
void apply_dropout(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, const T* in, T* out, Stream stream);

/// The same of whole channels, each of `area` values: the mask's elements are channels.
/// A block of 128 threads has one channel of a sample, about which each thread decides.
template <typename T>
void apply_channel_dropout(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t channels,
    int64_t area, double p, const T* in, T* out, Stream stream);

}  // namespace tandem::cuda
