#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

/// Arguments of scaled dot-product attention: softmax(scale * query * key^T + mask) *
/// value.
struct Attention {
  // batch x heads x positions x depth. With `grouped`, several heads of the query share
  // a head of key and value.
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  // bool or of the query's dtype, broadcast to batch x heads x queries x keys; may be
  // undefined.
  at::Tensor mask;
  double scale = 1;
  // True if query i reads only the keys 0 to i.
  bool is_causal = false;
  bool grouped = false;
};

/// Returns softmax(scale * query * key^T + mask), computed by operators of LibTorch.
/// Source: torch.nn.functional.scaled_dot_product_attention's documentation.
[[nodiscard]] at::Tensor attention_weights(const Attention& attention);

/// Returns the product of weights, after dropout, and the values.
[[nodiscard]] at::Tensor weighted_values(
    const Attention& attention, const at::Tensor& weights);

/// Returns whether attention_by_kernels() can compute this: float32 on the CPU, four
/// dimensions, a depth that is a multiple of 16, and a mask without a gradient.
[[nodiscard]] bool fits_attention_kernels(const Attention& attention);

/// Computes attention and its gradients without keeping a matrix of queries x keys.
/// Each head runs on one thread, so results do not depend on the number of threads.
[[nodiscard]] at::Tensor attention_by_kernels(const Attention& attention);

}  // namespace tandem
