#pragma once

#include <c10/core/ScalarType.h>

namespace tandem {

/// Selects the values that are rounded to a 16-bit format while their type remains
/// float32.
///
/// Layers compute in float32. In forward and backward, each value is rounded where an
/// operation in 16 bits would round it. Except for the order of sums, results equal
/// those of a device that multiplies in 16 bits and adds in float32.
///
/// Source of the fp16 levels: apex/amp/lists and apex/amp/_initialize.py.
enum class Rounding {
  none,
  // bfloat16, for CPUs without bfloat16 instructions.
  bf16,
  // float16 in all layers except log_softmax. Batch norm rounds only its output.
  fp16_o1,
  // Like fp16_o1, but float16 also in log_softmax and in the model's input.
  fp16_o2,
};

/// Returns whether values are rounded to float16.
inline bool is_fp16(Rounding rounding) {
  return rounding == Rounding::fp16_o1 || rounding == Rounding::fp16_o2;
}

/// Number formats in training, as returned by numerics_of() in exec/stage_executor.h.
/// Evaluation computes in `storage`.
struct Numerics {
  // Format of parameters, gradients, the loss, and activations between stages: float or
  // double.
  at::ScalarType storage = at::kFloat;
  // Format of the inputs of convolutions and matrix products: `storage` or bfloat16.
  at::ScalarType product = at::kFloat;
  Rounding rounding = Rounding::none;
  // True if float32 products on a GPU use a 10-bit mantissa.
  bool tf32 = false;
};

}  // namespace tandem
