// Convolutions and pooling in ONNX.

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>

#include <algorithm>
#include <functional>
#include <numeric>

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

int64_t product(const Dims& sizes) {
  return std::accumulate(
      sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
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
  return {call.add(
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
  return {call.add(
      "ConvTranspose", {call.tensor(0), call.tensor(1), call.tensor(2)},
      {{"kernel_shape", last_sizes(call, 1, dims)},
       {"strides", per_dimension(call, 3, dims)},
       {"pads", joined(padding, padding)},
       {"output_padding", per_dimension(call, 5, dims)},
       {"dilations", per_dimension(call, 7, dims)},
       {"group", call.integer(6)}})};
}

// max_pool(x, kernel, stride, padding, dilation, ceil_mode) and max_pool_with_indices.
// Padding at the end replaces ceil_mode, whose last window differs in ONNX. ONNX's
// indices count the elements of all images, PyTorch's those of one channel.
OnnxNames onnx_max_pool(const OnnxCall& call) {
  const Window window = window_of(call);
  const Dims dilation = per_dimension(call, 4, window.kernel.size());
  auto results = call.to.add_several(
      "MaxPool", {call.tensor(0)}, call.uses(1) ? 2 : 1,
      {{"kernel_shape", window.kernel},
       {"strides", window.stride},
       {"pads",
        call.flag(5)
            ? ceil_pads(call, window.kernel, window.stride, window.padding, dilation)
            : joined(window.padding, window.padding)},
       {"dilations", dilation}});
  if (call.uses(1)) {
    const auto channel =
        static_cast<double>(product(last_sizes(call, 0, window.kernel.size())));
    results[1] = call.add("Mod", {results[1], call.to.number(channel, at::kLong)});
  }
  return results;
}

// avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override);
// avg_pool1d has no divisor_override. PyTorch counts the padding, but not the padding
// that ceil_mode adds.
OnnxNames onnx_average_pool(const OnnxCall& call) {
  const Window window = window_of(call);
  const size_t dims = window.kernel.size();
  Dims pads = joined(window.padding, window.padding);
  if (call.flag(4)) {
    pads = ceil_pads(call, window.kernel, window.stride, window.padding, Dims(dims, 1));
  }
  const bool has_divisor = call.has(6);
  bool counts = call.flag(5) || has_divisor;
  std::string x = call.tensor(0);
  if (call.flag(4) && counts && !has_divisor) {
    x = call.add(
        "Pad",
        {x, call.to.integers(joined(
                joined({0, 0}, window.padding), joined({0, 0}, window.padding)))});
    for (size_t i = 0; i < dims; ++i) {
      pads[i] = 0;
      pads[dims + i] -= window.padding[i];
    }
    counts = false;
  }
  const auto average = call.add(
      "AveragePool", {x},
      {{"kernel_shape", window.kernel},
       {"strides", window.stride},
       {"pads", pads},
       {"count_include_pad", int64_t{counts}}});
  if (!has_divisor) {
    return {average};
  }
  const double scale = static_cast<double>(product(window.kernel)) / call.number(6);
  return {call.add("Mul", {average, call.constant(scale)})};
}

// adaptive_pool(x, output_size). If all windows have equal sizes and do not overlap,
// it is a pool; otherwise a reduction of each window, dimension by dimension.
OnnxNames onnx_adaptive_pool(const OnnxCall& call) {
  const size_t dims = window_dims(call, call.shape(0).size());
  const Dims input = last_sizes(call, 0, dims);
  Dims output;
  Dims window;
  bool equal = true;
  for (size_t i = 0; i < dims; ++i) {
    output.push_back(call.output().shape[2 + i].fixed);
    window.push_back(input[i] / output[i]);
    equal = equal && input[i] % output[i] == 0;
  }
  const std::string type = call.row.type;
  if (equal) {
    return {call.add(
        type, {call.tensor(0)}, {{"kernel_shape", window}, {"strides", window}})};
  }
  std::string x = call.tensor(0);
  for (size_t i = 0; i < dims; ++i) {
    const auto axis = static_cast<int64_t>(2 + i);
    OnnxNames parts;
    for (int64_t place = 0; place < output[i]; ++place) {
      const int64_t begin = place * input[i] / output[i];
      const int64_t end = ((place + 1) * input[i] + output[i] - 1) / output[i];
      parts.push_back(call.add(
          type == "MaxPool" ? "ReduceMax" : "ReduceMean",
          {call.slice(x, axis, begin, end)}, {{"axes", Dims{axis}}}));
    }
    x = call.add("Concat", parts, {{"axis", axis}});
  }
  return {x};
}

// max_unpool(x, indices, output_size, ...)
OnnxNames onnx_max_unpool(const OnnxCall& call) {
  window_dims(call, call.shape(0).size());
  const auto& shape = call.output().shape;
  const std::vector<Size> flat = {shape[0], shape[1], {product(call.integers(2)), 0}};
  const Dims rows = {0, 0, -1};
  const auto zeros = call.add("Expand", {call.constant(0), call.to.sizes(flat)});
  const auto filled = call.add(
      "ScatterElements",
      {zeros, call.add("Reshape", {call.tensor(1), call.to.integers(rows)}),
       call.add("Reshape", {call.tensor(0), call.to.integers(rows)})},
      {{"axis", int64_t{2}}});
  return {call.to.reshape(filled, shape)};
}

// im2col(x, kernel, dilation, padding, stride): gathers the rows, then the columns, of
// all windows.
OnnxNames onnx_unfold(const OnnxCall& call) {
  const size_t dims = window_dims(call, call.shape(0).size());
  const Dims kernel = per_dimension(call, 1, dims);
  const Dims dilation = per_dimension(call, 2, dims);
  const Dims padding = per_dimension(call, 3, dims);
  const Dims stride = per_dimension(call, 4, dims);
  const Dims input = last_sizes(call, 0, dims);
  const Dims around = joined({0, 0}, padding);
  std::string x =
      call.add("Pad", {call.tensor(0), call.to.integers(joined(around, around))});
  for (size_t i = 0; i < dims; ++i) {
    const int64_t places =
        (input[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
    const auto index = at::arange(kernel[i], at::kLong)
                           .mul(dilation[i])
                           .unsqueeze(1)
                           .add(at::arange(places, at::kLong).mul(stride[i]));
    // The dimension becomes [kernel, places].
    x = call.add(
        "Gather", {x, call.to.constant(index)},
        {{"axis", static_cast<int64_t>(2 + 2 * i)}});
  }
  // [N, C, kernel, places, kernel, places]
  x = call.add("Transpose", {x}, {{"perm", Dims{0, 1, 2, 4, 3, 5}}});
  return {call.to.reshape(x, call.output().shape)};
}

// col2im(x, output_size, kernel, dilation, padding, stride): a transposed convolution
// that copies each channel to its place in the window.
OnnxNames onnx_fold(const OnnxCall& call) {
  const Dims output = call.integers(1);
  const Dims kernel = per_dimension(call, 2, 2);
  const Dims dilation = per_dimension(call, 3, 2);
  const Dims padding = per_dimension(call, 4, 2);
  const Dims stride = per_dimension(call, 5, 2);
  const int64_t window = product(kernel);
  if (call.rank(0) != 3) {
    throw OnnxObstacle{"without a dimension for samples"};
  }
  const int64_t channels = call.fixed_size(0, 1) / window;
  Dims places;
  Dims rest;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = dilation[i] * (kernel[i] - 1) + 1;
    places.push_back((output[i] + 2 * padding[i] - reach) / stride[i] + 1);
    rest.push_back(output[i] - (places[i] - 1) * stride[i] - reach + 2 * padding[i]);
  }
  const auto images = call.add(
      "Reshape",
      {call.tensor(0), call.to.integers({0, channels * window, places[0], places[1]})});
  const auto weight = at::eye(window, call.output().dtype)
                          .view({window, 1, kernel[0], kernel[1]})
                          .repeat({channels, 1, 1, 1});
  return {call.add(
      "ConvTranspose", {images, call.to.constant(weight)},
      {{"kernel_shape", kernel},
       {"strides", stride},
       {"pads", joined(padding, padding)},
       {"output_padding", rest},
       {"dilations", dilation},
       {"group", channels}})};
}

}  // namespace tandem
