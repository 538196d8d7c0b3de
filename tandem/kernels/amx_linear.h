#pragma once

#include <cstdint>

// Products of a linear layer with AMX tiles, directly from float32 weights. Each weight
// is read once and rounded to bfloat16, which costs less than a packed copy. Sums are
// float32. Call these functions only if has_amx() returns true.
//
// Each call computes one range of the result. The division into ranges does not change
// the bits. Concurrent calls need separate `scratch` memory, which is aligned to 64
// bytes. The functions *_scratch() return its size.
//
//   product           left factor              right factor            sums in tiles
//   y^T  = W x^T      16 outputs x 32 inputs   inputs x 16 samples     16 x 64
//   dx   = dy W       16 samples x 32 outputs  outputs x 16 inputs     32 x 32
//   dW   = dy^T x     16 outputs x 32 samples  samples x 16 inputs     16 x 64

namespace tandem {

enum class Bf16 : uint16_t;

namespace amx {

/// Shape of a linear layer: inputs [count x in], weights [out x in] and outputs [count
/// x out], all row-major.
struct LinearShape {
  int64_t count = 0;
  int64_t in = 0;
  int64_t out = 0;
};

/// Range::begin is a multiple of this number.
constexpr int64_t kLinearGrain = 64;

/// A range [begin, end) of the outputs or inputs of a layer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Returns the size of the scratch memory for linear_forward(), in bytes.
int64_t forward_scratch(const LinearShape& shape, Range outputs);
/// Computes y = x weight^T + bias for a range of outputs. With `relu`, negative outputs
/// become zero and NaN remains NaN.
void linear_forward(
    const LinearShape& shape, Range outputs, const Bf16* x, const float* weight,
    const float* bias, bool relu, float* y, void* scratch);

/// Returns the size of the result of round_grad(), in bytes. Align its memory to 64
/// bytes.
int64_t rounded_grad_bytes(const LinearShape& shape);
/// Rounds the gradient of the outputs to bfloat16. Stores it in two layouts, for
/// linear_backward_input() and linear_backward_weight().
void round_grad(const LinearShape& shape, const float* grad_y, void* rounded);

/// Returns the size of the scratch memory for linear_backward_input() and
/// linear_backward_weight(), in bytes.
int64_t backward_scratch(const LinearShape& shape);
/// Computes grad_x = grad_y weight for a range of inputs. T is float or Bf16.
template <typename T>
void linear_backward_input(
    const LinearShape& shape, Range inputs, const void* rounded_grad,
    const float* weight, T* grad_x, void* scratch);
/// Computes grad_weight = grad_y^T x for a range of inputs. If `accumulate` is true,
/// adds the product to grad_weight.
void linear_backward_weight(
    const LinearShape& shape, Range inputs, const void* rounded_grad, const Bf16* x,
    bool accumulate, float* grad_weight, void* scratch);

}  // namespace amx

}  // namespace tandem
