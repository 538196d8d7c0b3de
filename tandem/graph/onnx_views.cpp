#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

constexpr int64_t kLastIndex = std::numeric_limits<int64_t>::max();

std::string element(const OnnxCall& call, int64_t dimension, int64_t index) {
  const auto place = call.to.number(static_cast<double>(index), at::kLong);
  return call.to.add("Gather", {call.tensor(0), place}, {{"axis", dimension}});
}

std::string slice(
    const OnnxCall& call, int64_t dimension, int64_t begin, int64_t end,
    int64_t step = 1) {
  auto& to = call.to;
  return to.add(
      "Slice", {call.tensor(0), to.integers({begin}), to.integers({end}),
                to.integers({dimension}), to.integers({step})});
}

// Returns slices of these sizes along a dimension.
OnnxNames slices(
    const OnnxCall& call, int64_t dimension, const std::vector<int64_t>& sizes) {
  OnnxNames parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice(call, dimension, begin, begin + size));
    begin += size;
  }
  return parts;
}

std::vector<int64_t> equal_parts(int64_t size, int64_t part) {
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < size; begin += part) {
    sizes.push_back(std::min(part, size - begin));
  }
  return sizes;
}

std::string permuted(const OnnxCall& call, const std::vector<int64_t>& dimensions) {
  return call.to.add("Transpose", {call.tensor(0)}, {{"perm", dimensions}});
}

// Returns the values of a list of tensors, in the dtype of the output.
OnnxNames tensors(const OnnxCall& call) {
  OnnxNames names;
  for (const auto& part : call.node.arguments[0].list) {
    names.push_back(call.as_output(
        call.to.name_of(part.value), call.graph.value(part.value).dtype));
  }
  return names;
}

int64_t list_dimension(const OnnxCall& call) {
  const int64_t dimension = call.integer(1);
  const auto rank = static_cast<int64_t>(call.output().shape.size());
  return dimension < 0 ? dimension + rank : dimension;
}

}  // namespace

OnnxNames onnx_reshape(const OnnxCall& call) {
  return {call.to.reshape(call.tensor(0), call.output().shape)};
}

OnnxNames onnx_permute(const OnnxCall& call) {
  auto dimensions = call.integers(1);
  for (auto& dimension : dimensions) {
    dimension = call.dimension(dimension);
  }
  return {permuted(call, dimensions)};
}

// transpose(x, dim0, dim1) and t(x)
OnnxNames onnx_transpose(const OnnxCall& call) {
  std::vector<int64_t> dimensions(static_cast<size_t>(call.rank(0)));
  std::iota(dimensions.begin(), dimensions.end(), 0);
  if (call.node.arguments.size() == 1) {
    std::reverse(dimensions.begin(), dimensions.end());
  } else {
    std::swap(
        dimensions[static_cast<size_t>(call.dimension(call.integer(1)))],
        dimensions[static_cast<size_t>(call.dimension(call.integer(2)))]);
  }
  return {permuted(call, dimensions)};
}

OnnxNames onnx_expand(const OnnxCall& call) {
  return {call.to.add("Expand", {call.tensor(0), call.to.sizes(call.output().shape)})};
}

OnnxNames onnx_cat(const OnnxCall& call) {
  return {call.to.add("Concat", tensors(call), {{"axis", list_dimension(call)}})};
}

OnnxNames onnx_stack(const OnnxCall& call) {
  const int64_t dimension = list_dimension(call);
  OnnxNames parts = tensors(call);
  for (auto& part : parts) {
    part = call.to.add("Unsqueeze", {part, call.to.integers({dimension})});
  }
  return {call.to.add("Concat", parts, {{"axis", dimension}})};
}

// select(x, dim, index)
OnnxNames onnx_select(const OnnxCall& call) {
  return {element(call, call.dimension(call.integer(1)), call.integer(2))};
}

// slice(x, dim, start, end, step)
OnnxNames onnx_slice(const OnnxCall& call) {
  const int64_t begin = call.has(2) ? call.integer(2) : 0;
  const int64_t end = call.has(3) ? call.integer(3) : kLastIndex;
  const int64_t step = call.integer(4);
  if (begin == 0 && end == kLastIndex && step == 1) {
    return {call.tensor(0)};
  }
  return {slice(call, call.dimension(call.integer(1)), begin, end, step)};
}

// narrow(x, dim, start, length)
OnnxNames onnx_narrow(const OnnxCall& call) {
  const int64_t dimension = call.dimension(call.integer(1));
  int64_t begin = call.integer(2);
  if (begin < 0) {
    begin += call.fixed_size(0, dimension);
  }
  return {slice(call, dimension, begin, begin + call.integer(3))};
}

// chunk(x, chunks, dim)
OnnxNames onnx_chunk(const OnnxCall& call) {
  const int64_t dimension = call.dimension(call.integer(2));
  const int64_t size = call.fixed_size(0, dimension);
  const int64_t chunks = call.integer(1);
  return slices(call, dimension, equal_parts(size, (size + chunks - 1) / chunks));
}

// split(x, size or sizes, dim), split_with_sizes(x, sizes, dim)
OnnxNames onnx_split(const OnnxCall& call) {
  const int64_t dimension = call.dimension(call.integer(2));
  const auto& sizes = call.node.arguments[1];
  const bool equal = sizes.kind == Argument::Kind::constant && sizes.constant.isInt();
  return slices(
      call, dimension,
      equal ? equal_parts(call.fixed_size(0, dimension), call.integer(1))
            : call.integers(1));
}

// unbind(x, dim)
OnnxNames onnx_unbind(const OnnxCall& call) {
  const int64_t dimension = call.dimension(call.integer(1));
  OnnxNames elements;
  for (int64_t i = 0; i < call.fixed_size(0, dimension); ++i) {
    elements.push_back(element(call, dimension, i));
  }
  return elements;
}

// embedding(weight, indices)
OnnxNames onnx_embedding(const OnnxCall& call) {
  return {call.to.add("Gather", {call.tensor(0), call.tensor(1)})};
}

// constant_pad_nd(x, pad, value), pad(x, pad, mode, value). PyTorch's `pad` has a pair
// for each of the last dimensions, from the last to the first.
OnnxNames onnx_pad(const OnnxCall& call) {
  const bool has_mode = call.node.arguments.size() == 4;
  const std::string mode = has_mode ? call.text(2) : "constant";
  const size_t value = has_mode ? 3 : 2;
  if (mode == "circular") {
    throw OnnxObstacle{"with mode 'circular'"};
  }
  const auto pairs = call.integers(1);
  const auto rank = static_cast<size_t>(call.rank(0));
  std::vector<int64_t> pads(2 * rank);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const size_t dimension = rank - 1 - i / 2;
    pads[dimension] = pairs[i];
    pads[rank + dimension] = pairs[i + 1];
  }
  OnnxNames inputs = {call.tensor(0), call.to.integers(pads)};
  if (mode == "constant" && call.has(value)) {
    inputs.push_back(call.to.number(call.number(value), call.output().dtype));
  }
  return {call.to.add(
      "Pad", inputs, {{"mode", mode == "replicate" ? std::string("edge") : mode}})};
}

}  // namespace tandem
