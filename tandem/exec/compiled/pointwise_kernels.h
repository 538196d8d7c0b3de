#pragma once

#include <cstdint>

#include "tandem/core/bf16.h"

namespace tandem {

// Loops over whole buffers, vectorised, on all threads of this rank; none of them
// allocates. T: float or Bf16.

/// Sets sum[j] to the sum of column j; `accumulate`: adds it.
void add_rows(
    const float* rows, int64_t count, int64_t width, bool accumulate, float* sum);

/// Computes to = from, or with `accumulate` to += from.
void store_gradient(const float* from, int64_t count, bool accumulate, float* to);

/// Round to the nearest bfloat16 or float16 value, ties to even, in place. What float16
/// does not hold becomes infinite.
void round_to_bf16(int64_t count, float* values);
void round_to_fp16(int64_t count, float* values);

template <typename T>
void rectify(const T* in, int64_t count, T* out);

/// Makes the gradient of a ReLU's output that of its input, in place: it becomes zero
/// where `output` is.
template <typename T>
void rectify_gradient(const T* output, int64_t count, T* grad);

/// out[i] = keep[i / run] * factor * in[i]; `keep` is 0 or 1. May be in place.
template <typename T>
void apply_dropout(
    const uint8_t* keep, int64_t run, float factor, int64_t count, const T* in, T* out);

}  // namespace tandem
