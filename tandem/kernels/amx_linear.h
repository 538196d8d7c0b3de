#pragma once

#include <cstdint>

// Products of a linear layer with AMX tiles, straight from float32 weights: they are
// read once, and rounded to bfloat16 on the way, which costs less than a packed copy.
// Sums are float32. For callers that have checked has_amx(). A call computes the part
// of the result that its range names; a part's bits do not depend on the range.
// `scratch`: 64-byte aligned, `..._scratch` bytes, not shared with a call that runs at
// the same time.
//
//   product           left side                right side              sums in tiles
//   y^T  = W x^T      16 outputs x 32 inputs   inputs x 16 samples     16 x 64
//   dx   = dy W       16 samples x 32 outputs  outputs x 16 inputs     32 x 32
//   dW   = dy^T x     16 outputs x 32 samples  samples x 16 inputs     16 x 64

namespace tandem {

enum class Bf16 : uint16_t;

namespace amx {

/// Inputs are [count x in], weights [out x in], outputs [count x out]; all in rows.
struct LinearShape {
  int64_t count = 0;
  int64_t in = 0;
  int64_t out = 0;
};

/// Ranges of outputs and inputs are cut at multiples of this.
constexpr int64_t kLinearGrain = 64;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

int64_t forward_scratch(const LinearShape& shape, Range outputs);
/// y = x weight^T + bias for some of the outputs; with `relu` negative ones become
/// zero, NaN stays.
void linear_forward(
    const LinearShape& shape, Range outputs, const Bf16* x, const float* weight,
    const float* bias, bool relu, float* y, void* scratch);

/// Bytes of what round_grad() writes, which is to be 64-byte aligned.
int64_t rounded_grad_bytes(const LinearShape& shape);
/// Lays out the gradient of the outputs twice, for each of the two products below.
void round_grad(const LinearShape& shape, const float* grad_y, void* rounded);

int64_t backward_scratch(const LinearShape& shape);
/// grad_x = grad_y weight, for some of the inputs. T: float or Bf16.
template <typename T>
void linear_backward_input(
    const LinearShape& shape, Range inputs, const void* rounded_grad,
    const float* weight, T* grad_x, void* scratch);
/// grad_weight = grad_y^T x, for some of the inputs; `accumulate`: added to it.
void linear_backward_weight(
    const LinearShape& shape, Range inputs, const void* rounded_grad, const Bf16* x,
    bool accumulate, float* grad_weight, void* scratch);

}  // namespace amx

}  // namespace tandem
