#pragma once

#include <cstdint>

#include "tandem/core/bf16.h"

namespace tandem {

// Vectorized loops over whole buffers. add_rows() and store_gradient() use one thread,
// the other functions all threads of this rank. They allocate no memory. T is float or
// Bf16.

/// Sums each column of `rows`, count x width. Writes the sum of column j to sum[j], or
/// adds it to sum[j] if `accumulate` is true.
void add_rows(
    const float* rows, int64_t count, int64_t width, bool accumulate, float* sum);

/// Copies `count` values from `from` to `to`, or adds them to `to` if `accumulate` is
/// true.
void store_gradient(const float* from, int64_t count, bool accumulate, float* to);

/// Rounds `count` values in place to the nearest bfloat16 values, ties to even.
void round_to_bf16(int64_t count, float* values);
/// Rounds `count` values in place to the nearest float16 values, ties to even. Values
/// that are too large for float16 become infinite.
void round_to_fp16(int64_t count, float* values);

/// Computes out = max(in, 0). `out` may be equal to `in`.
template <typename T>
void rectify(const T* in, int64_t count, T* out);

/// Computes the gradient of a ReLU's input from the gradient of its output, in place:
/// sets `grad` to zero where `output` is zero.
template <typename T>
void rectify_gradient(const T* output, int64_t count, T* grad);

/// Computes out[i] = keep[i / run] * factor * in[i]. The mask `keep` has a value, 0 or
/// 1, for each run of `run` elements. `out` may be equal to `in`.
template <typename T>
void apply_dropout(
    const uint8_t* keep, int64_t run, float factor, int64_t count, const T* in, T* out);

}  // namespace tandem
