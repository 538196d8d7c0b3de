// Products of matrices, and attention, in ONNX.

#include <ATen/ops/full.h>

#include <cmath>
#include <limits>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

// Returns keys or values for each head of the queries (enable_gqa).
std::string for_each_head(const OnnxCall& call, size_t argument) {
  const auto value = call.tensor(argument);
  const int64_t heads = call.rank(argument) - 3;
  const int64_t repeats =
      call.fixed_size(0, call.rank(0) - 3) / call.fixed_size(argument, heads);
  if (repeats == 1) {
    return value;
  }
  auto shape = call.shape(argument);
  std::vector<int64_t> tiles(shape.size() + 1, 1);
  tiles[static_cast<size_t>(heads) + 1] = repeats;
  shape[static_cast<size_t>(heads)].fixed *= repeats;
  const auto wide = call.add("Unsqueeze", {value, call.to.integers({heads + 1})});
  return call.to.reshape(call.add("Tile", {wide, call.to.integers(tiles)}), shape);
}

std::string masked_scores(const OnnxCall& call, std::string scores) {
  auto& to = call.to;
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  if (call.flag(5)) {
    const int64_t queries = call.fixed_size(0, call.rank(0) - 2);
    const int64_t keys = call.fixed_size(1, call.rank(1) - 2);
    const auto mask =
        at::full({queries, keys}, kMinusInfinity, call.output().dtype).triu(1);
    scores = to.add("Add", {scores, to.constant(mask)});
  }
  if (call.has(3)) {
    const auto mask = call.tensor(3);
    scores = call.value(3).dtype == at::kBool
                 ? to.add("Where", {mask, scores, call.constant(kMinusInfinity)})
                 : to.add("Add", {scores, mask});
  }
  return scores;
}

}  // namespace

// linear(x, weight, bias). ONNX's Gemm multiplies only matrices.
OnnxNames onnx_linear(const OnnxCall& call) {
  if (call.rank(0) == 2) {
    return {call.add(
        "Gemm", {call.tensor(0), call.tensor(1), call.tensor(2)},
        {{"transB", int64_t{1}}})};
  }
  const auto weight =
      call.add("Transpose", {call.tensor(1)}, {{"perm", std::vector<int64_t>{1, 0}}});
  const auto product = call.add("MatMul", {call.tensor(0), weight});
  return {call.has(2) ? call.add("Add", {product, call.tensor(2)}) : product};
}

// addmm(bias, a, b, beta, alpha)
OnnxNames onnx_addmm(const OnnxCall& call) {
  return {call.add(
      "Gemm", {call.tensor(1), call.tensor(2), call.tensor(0)},
      {{"alpha", call.number(4)}, {"beta", call.number(3)}})};
}

// einsum(equation, tensors, path)
OnnxNames onnx_einsum(const OnnxCall& call) {
  return {call.add("Einsum", call.tensors(1), {{"equation", call.text(0)}})};
}

// bilinear(x, y, weight, bias)
OnnxNames onnx_bilinear(const OnnxCall& call) {
  const auto product = call.add(
      "Einsum", {call.tensor(0), call.tensor(2), call.tensor(1)},
      {{"equation", std::string("...i,kij,...j->...k")}});
  return {call.has(3) ? call.add("Add", {product, call.tensor(3)}) : product};
}

// scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,
// scale, enable_gqa), as in its documentation
OnnxNames onnx_attention(const OnnxCall& call) {
  const bool grouped = call.has(7) && call.flag(7);
  const double scale =
      call.has(6)
          ? call.number(6)
          : 1 / std::sqrt(static_cast<double>(call.fixed_size(0, call.rank(0) - 1)));
  std::vector<int64_t> swapped;
  for (int64_t i = 0; i < call.rank(1); ++i) {
    swapped.push_back(i);
  }
  std::swap(swapped[swapped.size() - 2], swapped[swapped.size() - 1]);
  const auto key = call.add(
      "Transpose", {grouped ? for_each_head(call, 1) : call.tensor(1)},
      {{"perm", swapped}});
  // ONNX Runtime 1.32 rejects scaled queries if queries and keys are one value.
  const auto products = call.add("MatMul", {call.tensor(0), key});
  const auto scores =
      masked_scores(call, call.add("Mul", {products, call.constant(scale)}));
  const auto weights = call.add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  return {
      call.add("MatMul", {weights, grouped ? for_each_head(call, 2) : call.tensor(2)})};
}

}  // namespace tandem
