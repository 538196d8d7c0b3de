#pragma once

#include <cstdint>

#include "tandem/core/bf16.h"

namespace tandem {

// Loops over whole buffers, vectorised, on all threads of this rank; none of them
// allocates. T: float or Bf16.

/// sum[j] = the sum of column j (`accumulate`: added to it).
void add_rows(
    const float* rows, int64_t count, int64_t width, bool accumulate, float* sum);

/// to = from, or to += from.
void store_gradient(const float* from, int64_t count, bool accumulate, float* to);

template <typename T>
void rectify(const T* in, int64_t count, T* out);

/// The gradient behind a ReLU whose output is `output`, in place.
template <typename T>
void rectify_gradient(const T* output, int64_t count, T* grad);

/// out[i] = keep[i / run] * factor * in[i]; `keep` is 0 or 1. May be in place.
template <typename T>
void apply_dropout(
    const uint8_t* keep, int64_t run, float factor, int64_t count, const T* in, T* out);

}  // namespace tandem
