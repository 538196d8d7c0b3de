#pragma once

#include <cstdint>

#include "tandem/core/bf16.h"

namespace tandem {

// Vectorized loops over whole buffers, on all threads of this rank. They allocate
// nothing. T is float or Bf16.

/// Writes the sum of column j of `rows`, count x width, to sum[j], or adds it if
/// `accumulate`.
void add_rows(
    const float* rows, int64_t count, int64_t width, bool accumulate, float* sum);

/// Copies `from` to `to`, or adds it if `accumulate`.
void store_gradient(const float* from, int64_t count, bool accumulate, float* to);

/// Rounds to the nearest bfloat16 values, ties to even, in place.
void round_to_bf16(int64_t count, float* values);
/// Rounds to the nearest float16 values, ties to even, in place. Values that are too
/// large for float16 become infinite.
void round_to_fp16(int64_t count, float* values);

/// Computes out = max(in, 0). `out` may be equal to `in`.
template <typename T>
void rectify(const T* in, int64_t count, T* out);

/// Computes the gradient of a ReLU's input from the gradient of its output, in place:
/// sets `grad` to zero where `output` is zero.
template <typename T>
void rectify_gradient(const T* output, int64_t count, T* grad);

/// Computes out[i] = keep[i / run] * factor * in[i]. `keep` has values 0 or 1. `out`
/// may be equal to `in`.
template <typename T>
void apply_dropout(
    const uint8_t* keep, int64_t run, float factor, int64_t count, const T* in, T* out);

}  // namespace tandem
