// Operators along dimensions in ONNX.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

using Attributes = std::vector<OnnxAttribute>;

// Returns the dimensions in the argument `dim`; all dimensions if there are none.
std::vector<int64_t> reduced_dims(const OnnxCall& call) {
  const auto argument = call.find("dim");
  auto dims = argument ? call.integers(*argument) : std::vector<int64_t>();
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(call.rank(0)));
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (auto& dim : dims) {
    dim = call.dimension(dim);
  }
  return dims;
}

// Adds a reduction along dimensions. ReduceSum has the dimensions as an input.
std::string reduced(
    const OnnxCall& call, const std::string& type, const std::string& x,
    const std::vector<int64_t>& dims, bool keeps) {
  OnnxNames inputs = {x};
  Attributes attributes = {{"keepdims", int64_t{keeps}}};
  if (dims.empty()) {
    return call.add("Identity", inputs);
  }
  if (type == "ReduceSum") {
    inputs.push_back(call.to.integers(dims));
  } else {
    attributes.push_back({"axes", dims});
  }
  return call.add(type, inputs, attributes);
}

// Returns the number of elements along dimensions of the first argument.
std::string number_of_elements(const OnnxCall& call, const std::vector<int64_t>& dims) {
  std::vector<Size> sizes;
  for (const int64_t dim : dims) {
    sizes.push_back(call.shape(0)[static_cast<size_t>(dim)]);
  }
  const auto product =
      call.add("ReduceProd", {call.to.sizes(sizes)}, {{"keepdims", int64_t{0}}});
  return call.cast(product, at::kLong, call.output().dtype);
}

// Returns the p-norm of a value along dimensions.
std::string norm_of(
    const OnnxCall& call, const std::string& x, double p,
    const std::vector<int64_t>& dims, bool keeps) {
  if (p == 1 || p == 2) {
    return reduced(call, p == 1 ? "ReduceL1" : "ReduceL2", x, dims, keeps);
  }
  const auto absolute = call.add("Abs", {x});
  if (std::isinf(p)) {
    return reduced(call, p > 0 ? "ReduceMax" : "ReduceMin", absolute, dims, keeps);
  }
  if (p == 0) {
    return reduced(call, "ReduceSum", call.add("Sign", {absolute}), dims, keeps);
  }
  const auto powers = call.add("Pow", {absolute, call.constant(p)});
  const auto sum = reduced(call, "ReduceSum", powers, dims, keeps);
  return call.add("Pow", {sum, call.constant(1 / p)});
}

// Sorts along a dimension and returns the first `count` values and their indices.
OnnxNames sorted(
    const OnnxCall& call, int64_t dimension, int64_t count, bool descending) {
  return call.to.add_several(
      "TopK", {call.tensor(0), call.to.integers({count})}, 2,
      {{"axis", dimension}, {"largest", int64_t{descending}}});
}

// Returns the index of the largest or smallest value along a dimension.
std::string arg_of(
    const OnnxCall& call, const std::string& x, int64_t dimension, bool keeps) {
  const std::string type = call.row.type;
  return call.add(
      type == "ReduceMax" || type == "ArgMax" ? "ArgMax" : "ArgMin", {x},
      {{"axis", dimension}, {"keepdims", int64_t{keeps}}});
}

}  // namespace

// softmax(x, dim, dtype)
OnnxNames onnx_softmax(const OnnxCall& call) {
  return {call.add(
      call.row.type, {call.operand(0)}, {{"axis", call.dimension(call.integer(1))}})};
}

// mean(x, dim, keepdim, dtype) and other reductions; without `dim`, along all
// dimensions
OnnxNames onnx_reduce(const OnnxCall& call) {
  return {reduced(
      call, call.row.type, call.operand(0), reduced_dims(call),
      call.flag_or("keepdim", false))};
}

// var, std, var_mean and std_mean: (x, dim, unbiased or correction, keepdim). The row
// says whether the first output is the square root.
OnnxNames onnx_variance(const OnnxCall& call) {
  const auto dims = reduced_dims(call);
  const bool keeps = call.flag_or("keepdim", false);
  const double correction = call.find("unbiased")
                                ? (call.flag_or("unbiased", true) ? 1 : 0)
                                : call.number_or("correction", 1);
  const auto x = call.tensor(0);
  const auto mean = reduced(call, "ReduceMean", x, dims, true);
  const auto distance = call.add("Sub", {x, mean});
  const auto squares = call.add("Mul", {distance, distance});
  const auto count = number_of_elements(call, dims);
  auto result = call.add(
      "Div", {reduced(call, "ReduceSum", squares, dims, keeps),
              call.add("Sub", {count, call.constant(correction)})});
  if (call.row.type == std::string("std")) {
    result = call.add("Sqrt", {result});
  }
  return {result, call.uses(1) ? reduced(call, "ReduceMean", x, dims, keeps) : ""};
}

// linalg_vector_norm(x, ord, dim, keepdim, dtype), norm(x, p, dim, keepdim, dtype)
OnnxNames onnx_norm(const OnnxCall& call) {
  return {norm_of(
      call, call.operand(0), call.number_or("ord", call.number_or("p", 2)),
      reduced_dims(call), call.flag_or("keepdim", false))};
}

// max(x), max(x, y), max(x, dim, keepdim), and the same for min. The row has the
// reduction's type.
OnnxNames onnx_extreme(const OnnxCall& call) {
  const std::string type = call.row.type;
  if (call.node.overload == "other") {
    return {call.add(type.substr(6), {call.operand(0), call.operand(1)})};
  }
  const auto dims = reduced_dims(call);
  if (!call.find("dim")) {
    return {reduced(call, type, call.tensor(0), dims, false)};
  }
  const bool keeps = call.flag(2);
  OnnxNames results(2);
  if (call.uses(0)) {
    results[0] = reduced(call, type, call.tensor(0), dims, keeps);
  }
  if (call.uses(1)) {
    results[1] = arg_of(call, call.tensor(0), dims.at(0), keeps);
  }
  return results;
}

// argmax(x, dim, keepdim) and argmin(x, dim, keepdim). Without `dim`, the index counts
// all elements.
OnnxNames onnx_arg_extreme(const OnnxCall& call) {
  if (call.find("dim")) {
    return {arg_of(call, call.tensor(0), reduced_dims(call).at(0), call.flag(2))};
  }
  const auto flat = call.add("Reshape", {call.tensor(0), call.to.integers({-1})});
  return {call.to.reshape(arg_of(call, flat, 0, false), call.output().shape)};
}

// all(x, dim, keepdim) and any(x, dim, keepdim). ONNX does not reduce booleans.
OnnxNames onnx_all_or_any(const OnnxCall& call) {
  const auto numbers = call.cast(call.operand(0, at::kBool), at::kBool, at::kInt);
  const auto result = reduced(
      call, call.row.type, numbers, reduced_dims(call), call.flag_or("keepdim", false));
  return {call.cast(result, at::kInt, call.output().dtype)};
}

// sort(x, dim, descending) and argsort(x, dim, descending)
OnnxNames onnx_sort(const OnnxCall& call) {
  const auto dim = call.find("dim");
  const int64_t dimension = call.dimension(dim ? call.integer(*dim) : -1);
  const auto results = sorted(
      call, dimension, call.fixed_size(0, dimension),
      call.flag_or("descending", false));
  return call.row.type == std::string("indices") ? OnnxNames{results[1]} : results;
}

// topk(x, k, dim, largest, sorted)
OnnxNames onnx_top_k(const OnnxCall& call) {
  return sorted(call, call.dimension(call.integer(2)), call.integer(1), call.flag(3));
}

// cumsum(x, dim, dtype)
OnnxNames onnx_cumulative_sum(const OnnxCall& call) {
  const auto dimension = static_cast<double>(call.dimension(call.integer(1)));
  return {call.add("CumSum", {call.operand(0), call.to.number(dimension, at::kLong)})};
}

// cosine_similarity(x, y, dim, eps)
OnnxNames onnx_cosine_similarity(const OnnxCall& call) {
  const std::vector<int64_t> dims = {call.integer(2)};
  const auto epsilon = call.constant(call.number(3));
  const auto x = call.operand(0);
  const auto y = call.operand(1);
  const auto length = [&](const std::string& value) {
    return call.add("Max", {reduced(call, "ReduceL2", value, dims, false), epsilon});
  };
  const auto product = reduced(call, "ReduceSum", call.add("Mul", {x, y}), dims, false);
  return {call.add("Div", {product, call.add("Mul", {length(x), length(y)})})};
}

// pairwise_distance(x, y, p, eps, keepdim)
OnnxNames onnx_pairwise_distance(const OnnxCall& call) {
  const auto difference = call.add("Sub", {call.operand(0), call.operand(1)});
  const auto shifted = call.add("Add", {difference, call.constant(call.number(3))});
  return {norm_of(call, shifted, call.number(2), {-1}, call.flag(4))};
}

// cdist(x, y, p): distances of all rows
OnnxNames onnx_distances(const OnnxCall& call) {
  const auto x = call.add("Unsqueeze", {call.tensor(0), call.to.integers({-2})});
  const auto y = call.add("Unsqueeze", {call.tensor(1), call.to.integers({-3})});
  return {norm_of(call, call.add("Sub", {x, y}), call.number(2), {-1}, false)};
}

// _weight_norm(v, g, dim) = v * g / |v|, with the norm along the other dimensions
OnnxNames onnx_weight_norm(const OnnxCall& call) {
  std::vector<int64_t> dims;
  const int64_t kept = call.integer(2);
  for (int64_t i = 0; i < call.rank(0); ++i) {
    if (i != kept) {
      dims.push_back(i);
    }
  }
  const auto norm = norm_of(call, call.tensor(0), 2, dims, true);
  const auto scale = call.add("Div", {call.tensor(1), norm});
  return {call.add("Mul", {call.tensor(0), scale})};
}

}  // namespace tandem
