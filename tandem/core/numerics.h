#pragma once

#include <c10/core/ScalarType.h>

namespace tandem {

/// Values of 16 bits in float32 memory: each is rounded where an operation in 16 bits
/// would round it, forward and backward. In between, layers compute in float32. So the
/// values are those of a device that multiplies 16 bits and adds in float32, but for
/// the order of sums.
///
/// Source of the levels of fp16: apex/amp/lists and apex/amp/_initialize.py.
enum class Rounding {
  none,
  // bfloat16, for CPUs that do not compute in it.
  bf16,
  // All layers but log_softmax. Batch norm rounds its output only.
  fp16_o1,
  // log_softmax and the model's input too.
  fp16_o2,
};

inline bool is_fp16(Rounding rounding) {
  return rounding == Rounding::fp16_o1 || rounding == Rounding::fp16_o2;
}

/// The number formats of a run's training, decided once (numerics_of() in
/// exec/stage_executor.h). Evaluation computes in `storage`.
struct Numerics {
  // Parameters, gradients, the loss, and activations between stages: float or double.
  at::ScalarType storage = at::kFloat;
  // What convolutions and matrix products read: `storage`, or bfloat16.
  at::ScalarType product = at::kFloat;
  Rounding rounding = Rounding::none;
  // On a GPU, products of float32 use a 10-bit mantissa.
  bool tf32 = false;
};

}  // namespace tandem
