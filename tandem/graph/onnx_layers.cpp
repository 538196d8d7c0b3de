// Layers with parameters, pooling and attention in ONNX.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

using Dims = std::vector<int64_t>;

// Returns the number of dimensions after samples and channels.
size_t window_dims(const OnnxCall& call, size_t rank) {
  if (rank < 3 || call.shape(0).size() != rank) {
    throw OnnxObstacle{"without a dimension for samples"};
  }
  return rank - 2;
}

// Returns a number for each dimension of a window. One number in the list applies to
// all dimensions.
Dims per_dimension(const OnnxCall& call, size_t argument, size_t dims) {
  Dims numbers = call.integers(argument);
  numbers.resize(dims, numbers.empty() ? 0 : numbers.back());
  return numbers;
}

Dims joined(Dims begin, const Dims& end) {
  begin.insert(begin.end(), end.begin(), end.end());
  return begin;
}

Dims last_sizes(const OnnxCall& call, size_t argument, size_t dims) {
  Dims sizes;
  for (size_t i = call.shape(argument).size() - dims; i < call.shape(argument).size();
       ++i) {
    sizes.push_back(call.fixed_size(argument, static_cast<int64_t>(i)));
  }
  return sizes;
}

// Returns pads at the begin and the end of each dimension. `padding` is a list, "same"
// or "valid".
Dims convolution_pads(const OnnxCall& call, const Dims& kernel, const Dims& dilation) {
  const auto& padding = call.node.arguments[4];
  if (padding.kind != Argument::Kind::constant || !padding.constant.isString()) {
    const Dims pads = per_dimension(call, 4, kernel.size());
    return joined(pads, pads);
  }
  Dims begin;
  Dims end;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t all =
        padding.constant.toStringRef() == "same" ? dilation[i] * (kernel[i] - 1) : 0;
    begin.push_back(all / 2);
    end.push_back(all - all / 2);
  }
  return joined(begin, end);
}

// Returns a parameter of channels with a shape that is broadcast over images.
std::string over_channels(const OnnxCall& call, const std::string& value) {
  Dims shape(call.shape(0).size() - 1, 1);
  shape[0] = -1;
  return call.to.add("Reshape", {value, call.to.integers(shape)});
}

// Returns an optional parameter; if it is missing, a constant.
std::string parameter_or(
    const OnnxCall& call, size_t argument, double value, int64_t size) {
  return call.has(argument)
             ? call.tensor(argument)
             : call.to.constant(at::full({size}, value, call.output().dtype));
}

// Returns the padding at the begin and the end of each dimension with which the windows
// of a pool with ceil_mode fit. The padding at the end is computed from the size of the
// output.
Dims ceil_pads(
    const OnnxCall& call, const Dims& kernel, const Dims& stride, const Dims& padding,
    const Dims& dilation) {
  const size_t dims = kernel.size();
  const Dims input = last_sizes(call, 0, dims);
  Dims end;
  for (size_t i = 0; i < dims; ++i) {
    const auto& output = call.output().shape[call.output().shape.size() - dims + i];
    const int64_t reach =
        (output.fixed - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1;
    end.push_back(std::max(padding[i], reach - input[i] - padding[i]));
  }
  return joined(padding, end);
}

struct Window {
  Dims kernel;
  Dims stride;
  Dims padding;
};

// pool(x, kernel, stride, padding, ...); the default stride is the kernel.
Window window_of(const OnnxCall& call) {
  const size_t dims = window_dims(call, call.shape(0).size());
  Window window;
  window.kernel = per_dimension(call, 1, dims);
  window.stride =
      call.integers(2).empty() ? window.kernel : per_dimension(call, 2, dims);
  window.padding = per_dimension(call, 3, dims);
  return window;
}

}  // namespace

// conv(x, weight, bias, stride, padding, dilation, groups)
OnnxNames onnx_convolution(const OnnxCall& call) {
  const size_t dims = window_dims(call, call.shape(1).size());
  const Dims kernel = last_sizes(call, 1, dims);
  const Dims dilation = per_dimension(call, 5, dims);
  return {call.to.add(
      "Conv", {call.tensor(0), call.tensor(1), call.tensor(2)},
      {{"kernel_shape", kernel},
       {"strides", per_dimension(call, 3, dims)},
       {"pads", convolution_pads(call, kernel, dilation)},
       {"dilations", dilation},
       {"group", call.integer(6)}})};
}

// conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation)
OnnxNames onnx_transposed_convolution(const OnnxCall& call) {
  const size_t dims = window_dims(call, call.shape(1).size());
  const Dims padding = per_dimension(call, 4, dims);
  return {call.to.add(
      "ConvTranspose", {call.tensor(0), call.tensor(1), call.tensor(2)},
      {{"kernel_shape", last_sizes(call, 1, dims)},
       {"strides", per_dimension(call, 3, dims)},
       {"pads", joined(padding, padding)},
       {"output_padding", per_dimension(call, 5, dims)},
       {"dilations", per_dimension(call, 7, dims)},
       {"group", call.integer(6)}})};
}

// linear(x, weight, bias). ONNX's Gemm multiplies only matrices.
OnnxNames onnx_linear(const OnnxCall& call) {
  if (call.rank(0) == 2) {
    return {call.to.add(
        "Gemm", {call.tensor(0), call.tensor(1), call.tensor(2)},
        {{"transB", int64_t{1}}})};
  }
  const auto weight =
      call.to.add("Transpose", {call.tensor(1)}, {{"perm", Dims{1, 0}}});
  const auto product = call.to.add("MatMul", {call.tensor(0), weight});
  return {call.has(2) ? call.to.add("Add", {product, call.tensor(2)}) : product};
}

// addmm(bias, a, b, beta, alpha)
OnnxNames onnx_addmm(const OnnxCall& call) {
  return {call.to.add(
      "Gemm", {call.tensor(1), call.tensor(2), call.tensor(0)},
      {{"alpha", call.number(4)}, {"beta", call.number(3)}})};
}

// batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, ...)
OnnxNames onnx_batch_norm(const OnnxCall& call) {
  if (!call.has(3)) {
    throw OnnxObstacle{"without running statistics"};
  }
  const int64_t channels = call.fixed_size(3, 0);
  return {call.to.add(
      "BatchNormalization",
      {call.tensor(0), parameter_or(call, 1, 1, channels),
       parameter_or(call, 2, 0, channels), call.tensor(3), call.tensor(4)},
      {{"epsilon", call.number(7)}})};
}

// layer_norm(x, normalized_shape, weight, bias, eps, ...)
OnnxNames onnx_layer_norm(const OnnxCall& call) {
  const Dims sizes = call.integers(1);
  const auto weight = call.has(2)
                          ? call.tensor(2)
                          : call.to.constant(at::ones(sizes, call.output().dtype));
  return {call.to.add(
      "LayerNormalization", {call.tensor(0), weight, call.tensor(3)},
      {{"axis", -static_cast<int64_t>(sizes.size())}, {"epsilon", call.number(4)}})};
}

// group_norm(x, groups, weight, bias, eps, ...): each group is normalised like
// a channel of instance norm. Reshape copies the size 0.
OnnxNames onnx_group_norm(const OnnxCall& call) {
  auto& to = call.to;
  const int64_t groups = call.integer(1);
  const auto dtype = call.output().dtype;
  const auto grouped =
      to.add("Reshape", {call.tensor(0), to.integers({0, groups, -1})});
  const auto normalised = to.add(
      "InstanceNormalization",
      {grouped, to.constant(at::ones({groups}, dtype)),
       to.constant(at::zeros({groups}, dtype))},
      {{"epsilon", call.number(4)}});
  auto result = to.reshape(normalised, call.shape(0));
  if (call.has(2)) {
    result = to.add("Mul", {result, over_channels(call, call.tensor(2))});
  }
  if (call.has(3)) {
    result = to.add("Add", {result, over_channels(call, call.tensor(3))});
  }
  return {result};
}

// prelu(x, weight)
OnnxNames onnx_prelu(const OnnxCall& call) {
  const bool one = call.fixed_size(1, 0) == 1 || call.rank(0) < 2;
  return {call.to.add(
      "PRelu",
      {call.tensor(0), one ? call.tensor(1) : over_channels(call, call.tensor(1))})};
}

// max_pool(x, kernel, stride, padding, dilation, ceil_mode). Padding at the end
// replaces ceil_mode, whose last window differs in ONNX.
OnnxNames onnx_max_pool(const OnnxCall& call) {
  const Window window = window_of(call);
  const Dims dilation = per_dimension(call, 4, window.kernel.size());
  return {call.to.add(
      "MaxPool", {call.tensor(0)},
      {{"kernel_shape", window.kernel},
       {"strides", window.stride},
       {"pads",
        call.flag(5)
            ? ceil_pads(call, window.kernel, window.stride, window.padding, dilation)
            : joined(window.padding, window.padding)},
       {"dilations", dilation}})};
}

// avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override);
// avg_pool1d has no divisor_override.
OnnxNames onnx_average_pool(const OnnxCall& call) {
  if (call.flag(4)) {
    throw OnnxObstacle{"with ceil_mode"};
  }
  if (call.node.arguments.size() > 6 && call.has(6)) {
    throw OnnxObstacle{"with divisor_override"};
  }
  const Window window = window_of(call);
  return {call.to.add(
      "AveragePool", {call.tensor(0)},
      {{"kernel_shape", window.kernel},
       {"strides", window.stride},
       {"pads", joined(window.padding, window.padding)},
       {"count_include_pad", int64_t{call.flag(5)}}})};
}

// adaptive_pool(x, output_size), in which windows of equal size do not overlap
OnnxNames onnx_adaptive_pool(const OnnxCall& call) {
  const size_t dims = window_dims(call, call.shape(0).size());
  const Dims input = last_sizes(call, 0, dims);
  Dims window;
  for (size_t i = 0; i < dims; ++i) {
    const auto& output = call.output().shape[2 + i];
    if (input[i] % output.fixed != 0) {
      throw OnnxObstacle{
          "from " + std::to_string(input[i]) + " to " + std::to_string(output.fixed) +
          " pixels"};
    }
    window.push_back(input[i] / output.fixed);
  }
  return {call.to.add(
      call.row.type, {call.tensor(0)},
      {{"kernel_shape", window}, {"strides", window}})};
}

// scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,
// scale, enable_gqa), as in its documentation
OnnxNames onnx_attention(const OnnxCall& call) {
  auto& to = call.to;
  const auto dtype = call.output().dtype;
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  const auto arguments = call.node.arguments.size();
  if (arguments > 7 && call.flag(7)) {
    throw OnnxObstacle{"with enable_gqa"};
  }
  const double scale =
      arguments > 6 && call.has(6)
          ? call.number(6)
          : 1 / std::sqrt(static_cast<double>(call.fixed_size(0, call.rank(0) - 1)));
  Dims swapped;
  for (int64_t i = 0; i < call.rank(1); ++i) {
    swapped.push_back(i);
  }
  std::swap(swapped[swapped.size() - 2], swapped[swapped.size() - 1]);
  const auto query = to.add("Mul", {call.tensor(0), to.number(scale, dtype)});
  const auto key = to.add("Transpose", {call.tensor(1)}, {{"perm", swapped}});
  auto scores = to.add("MatMul", {query, key});
  if (call.flag(5)) {
    const int64_t queries = call.fixed_size(0, call.rank(0) - 2);
    const int64_t keys = call.fixed_size(1, call.rank(1) - 2);
    const auto mask = at::full({queries, keys}, kMinusInfinity, dtype).triu(1);
    scores = to.add("Add", {scores, to.constant(mask)});
  }
  if (call.has(3)) {
    const auto mask = call.tensor(3);
    scores = call.value(3).dtype == at::kBool
                 ? to.add("Where", {mask, scores, to.number(kMinusInfinity, dtype)})
                 : to.add("Add", {scores, mask});
  }
  const auto weights = to.add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  return {to.add("MatMul", {weights, call.tensor(2)})};
}

}  // namespace tandem
