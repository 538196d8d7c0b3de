// Operators that move values in ONNX.

#include <ATen/ops/arange.h>

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
  return call.add("Gather", {call.tensor(0), place}, {{"axis", dimension}});
}

// Returns slices of these sizes along a dimension.
OnnxNames slices(
    const OnnxCall& call, int64_t dimension, const std::vector<int64_t>& sizes) {
  OnnxNames parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(call.slice(call.tensor(0), dimension, begin, begin + size));
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
  return call.add("Transpose", {call.tensor(0)}, {{"perm", dimensions}});
}

// Returns the values of a list of tensors, in the dtype of the output.
OnnxNames converted_tensors(const OnnxCall& call) {
  OnnxNames names;
  for (const auto& part : call.node.arguments[0].list) {
    names.push_back(call.cast(
        call.to.name_of(part.value), call.graph.value(part.value).dtype,
        call.output().dtype));
  }
  return names;
}

int64_t list_dimension(const OnnxCall& call) {
  const int64_t dimension = call.integer(1);
  const auto rank = static_cast<int64_t>(call.output().shape.size());
  return dimension < 0 ? dimension + rank : dimension;
}

// Pads with values from the other end of each dimension.
std::string padded_in_circles(const OnnxCall& call, const std::vector<int64_t>& pairs) {
  std::string x = call.tensor(0);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i] < 0 || pairs[i + 1] < 0) {
      throw OnnxObstacle{"with mode 'circular' and negative padding"};
    }
    const int64_t axis = call.rank(0) - 1 - static_cast<int64_t>(i / 2);
    const int64_t size = call.fixed_size(0, axis);
    OnnxNames parts = {x};
    if (pairs[i] > 0) {
      parts.insert(parts.begin(), call.slice(x, axis, size - pairs[i], size));
    }
    if (pairs[i + 1] > 0) {
      parts.push_back(call.slice(x, axis, 0, pairs[i + 1]));
    }
    if (parts.size() > 1) {
      x = call.add("Concat", parts, {{"axis", axis}});
    }
  }
  return x;
}

}  // namespace

OnnxNames onnx_reshape(const OnnxCall& call) {
  if (call.node.overload == "dtype") {
    throw OnnxObstacle{"with a dtype"};
  }
  return {call.to.reshape(call.tensor(0), call.output().shape)};
}

OnnxNames onnx_permute(const OnnxCall& call) {
  auto dimensions = call.integers(1);
  for (auto& dimension : dimensions) {
    dimension = call.dimension(dimension);
  }
  return {permuted(call, dimensions)};
}

// transpose(x, dim0, dim1), t(x), and mT(x), which swaps the last two dimensions
OnnxNames onnx_transpose(const OnnxCall& call) {
  std::vector<int64_t> dimensions(static_cast<size_t>(call.rank(0)));
  std::iota(dimensions.begin(), dimensions.end(), 0);
  if (call.node.arguments.size() == 1) {
    const bool all = call.row.type != std::string("last two") || call.rank(0) < 2;
    std::reverse(all ? dimensions.begin() : dimensions.end() - 2, dimensions.end());
  } else {
    std::swap(
        dimensions[static_cast<size_t>(call.dimension(call.integer(1)))],
        dimensions[static_cast<size_t>(call.dimension(call.integer(2)))]);
  }
  return {permuted(call, dimensions)};
}

OnnxNames onnx_expand(const OnnxCall& call) {
  return {call.add("Expand", {call.tensor(0), call.to.sizes(call.output().shape)})};
}

OnnxNames onnx_cat(const OnnxCall& call) {
  return {
      call.add("Concat", converted_tensors(call), {{"axis", list_dimension(call)}})};
}

OnnxNames onnx_stack(const OnnxCall& call) {
  const int64_t dimension = list_dimension(call);
  OnnxNames parts = converted_tensors(call);
  for (auto& part : parts) {
    part = call.add("Unsqueeze", {part, call.to.integers({dimension})});
  }
  return {call.add("Concat", parts, {{"axis", dimension}})};
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
  return {
      call.slice(call.tensor(0), call.dimension(call.integer(1)), begin, end, step)};
}

// narrow(x, dim, start, length)
OnnxNames onnx_narrow(const OnnxCall& call) {
  const int64_t dimension = call.dimension(call.integer(1));
  int64_t begin = call.integer(2);
  if (begin < 0) {
    begin += call.fixed_size(0, dimension);
  }
  return {call.slice(call.tensor(0), dimension, begin, begin + call.integer(3))};
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

// constant_pad_nd(x, pad, value), pad(x, pad, mode, value), reflection_pad(x, pad).
// PyTorch's `pad` has a pair for each of the last dimensions, from the last to the
// first.
OnnxNames onnx_pad(const OnnxCall& call) {
  const auto has_mode = call.find("mode");
  std::string mode = has_mode ? call.text(*has_mode) : call.row.type;
  const auto pairs = call.integers(1);
  if (mode == "circular") {
    return {padded_in_circles(call, pairs)};
  }
  const auto rank = static_cast<size_t>(call.rank(0));
  std::vector<int64_t> pads(2 * rank);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const size_t dimension = rank - 1 - i / 2;
    pads[dimension] = pairs[i];
    pads[rank + dimension] = pairs[i + 1];
  }
  OnnxNames inputs = {call.tensor(0), call.to.integers(pads)};
  const auto value = call.find("value");
  if (mode == "constant" && value) {
    inputs.push_back(call.constant(call.number(*value)));
  }
  return {call.add(
      "Pad", inputs, {{"mode", mode == "replicate" ? std::string("edge") : mode}})};
}

// movedim(x, source, destination)
OnnxNames onnx_movedim(const OnnxCall& call) {
  const auto from = call.integers(1);
  const auto to = call.integers(2);
  std::vector<int64_t> order(static_cast<size_t>(call.rank(0)), -1);
  std::vector<bool> moved(order.size());
  for (size_t i = 0; i < from.size(); ++i) {
    order[static_cast<size_t>(call.dimension(to[i]))] = call.dimension(from[i]);
    moved[static_cast<size_t>(call.dimension(from[i]))] = true;
  }
  size_t next = 0;
  for (auto& dimension : order) {
    if (dimension < 0) {
      next = static_cast<size_t>(
          std::find(moved.begin() + static_cast<int64_t>(next), moved.end(), false) -
          moved.begin());
      dimension = static_cast<int64_t>(next++);
    }
  }
  return {permuted(call, order)};
}

// broadcast_tensors(tensors)
OnnxNames onnx_broadcast(const OnnxCall& call) {
  OnnxNames results;
  for (const auto& part : call.tensors(0)) {
    results.push_back(call.add("Expand", {part, call.to.sizes(call.output().shape)}));
  }
  return results;
}

// flip(x, dims)
OnnxNames onnx_flip(const OnnxCall& call) {
  std::string x = call.tensor(0);
  for (const int64_t dimension : call.integers(1)) {
    x = call.slice(x, call.dimension(dimension), -1, -kLastIndex, -1);
  }
  return {x};
}

// roll(x, shifts, dims)
OnnxNames onnx_roll(const OnnxCall& call) {
  const auto shifts = call.integers(1);
  const auto dims = call.integers(2);
  if (dims.empty()) {
    throw OnnxObstacle{"without dims"};
  }
  std::string x = call.tensor(0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t axis = call.dimension(dims[i]);
    const int64_t size = call.fixed_size(0, axis);
    const int64_t first = ((-shifts[i] % size) + size) % size;
    if (first > 0) {
      x = call.add(
          "Concat", {call.slice(x, axis, first, size), call.slice(x, axis, 0, first)},
          {{"axis", axis}});
    }
  }
  return {x};
}

// repeat(x, repeats) and tile(x, dims). The shorter list of sizes gets ones in front.
OnnxNames onnx_repeat(const OnnxCall& call) {
  auto repeats = call.sizes(1);
  auto shape = call.shape(0);
  const size_t rank = std::max(repeats.size(), shape.size());
  repeats.insert(repeats.begin(), rank - repeats.size(), Size{1, 0});
  std::string x = call.tensor(0);
  if (shape.size() < rank) {
    shape.insert(shape.begin(), rank - shape.size(), Size{1, 0});
    x = call.to.reshape(x, shape);
  }
  return {call.add("Tile", {x, call.to.sizes(repeats)})};
}

// repeat_interleave(x, repeats, dim), with a number of repeats
OnnxNames onnx_repeat_interleave(const OnnxCall& call) {
  const auto repeats = call.find("repeats");
  if (call.node.overload != "self_int" || !repeats || !call.find("dim")) {
    throw OnnxObstacle{"without a number of repeats and a dimension"};
  }
  const int64_t axis = call.dimension(call.integer(2)) + 1;
  std::vector<int64_t> tiles(static_cast<size_t>(call.rank(0)) + 1, 1);
  tiles[static_cast<size_t>(axis)] = call.integer(*repeats);
  const auto wide = call.add("Unsqueeze", {call.tensor(0), call.to.integers({axis})});
  return {call.to.reshape(
      call.add("Tile", {wide, call.to.integers(tiles)}), call.output().shape)};
}

// tril(x, diagonal) and triu(x, diagonal)
OnnxNames onnx_triangle(const OnnxCall& call) {
  const auto dtype = call.output().dtype;
  const auto inner = dtype == at::kBool ? at::kLong : dtype;
  const bool upper = call.row.type == std::string("upper");
  const auto result = call.add(
      "Trilu",
      {call.operand(0, inner),
       call.to.number(static_cast<double>(call.integer(1)), at::kLong)},
      {{"upper", int64_t{upper}}});
  return {call.cast(result, inner, dtype)};
}

// unfold(x, dim, size, step): windows along a dimension, with a new last dimension
OnnxNames onnx_windows(const OnnxCall& call) {
  const int64_t axis = call.dimension(call.integer(1));
  const int64_t size = call.integer(2);
  const int64_t step = call.integer(3);
  const int64_t count = (call.fixed_size(0, axis) - size) / step + 1;
  const auto places = at::arange(count, at::kLong)
                          .mul(step)
                          .unsqueeze(1)
                          .add(at::arange(size, at::kLong));
  const auto found =
      call.add("Gather", {call.tensor(0), call.to.constant(places)}, {{"axis", axis}});
  std::vector<int64_t> order;
  for (int64_t i = 0; i < call.rank(0) + 1; ++i) {
    if (i != axis + 1) {
      order.push_back(i);
    }
  }
  order.push_back(axis + 1);
  return {call.add("Transpose", {found}, {{"perm", order}})};
}

}  // namespace tandem
