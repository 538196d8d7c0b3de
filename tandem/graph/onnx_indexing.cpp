// Elements at computed places in ONNX.

#include <ATen/ops/tensor.h>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

// embedding(weight, indices)
OnnxNames onnx_embedding(const OnnxCall& call) {
  return {call.add("Gather", {call.tensor(0), call.tensor(1)})};
}

// gather(x, dim, index)
OnnxNames onnx_gather(const OnnxCall& call) {
  return {call.add(
      "GatherElements", {call.tensor(0), call.tensor(2)},
      {{"axis", call.dimension(call.integer(1))}})};
}

// index_select(x, dim, index)
OnnxNames onnx_index_select(const OnnxCall& call) {
  return {call.add(
      "Gather", {call.tensor(0), call.tensor(2)},
      {{"axis", call.dimension(call.integer(1))}})};
}

// index(x, indices): x[:, index]
OnnxNames onnx_index(const OnnxCall& call) {
  const auto& indices = call.node.arguments[1].list;
  int64_t axis = -1;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i].kind != Argument::Kind::value) {
      continue;
    }
    if (axis >= 0) {
      throw OnnxObstacle{"with several tensors of indices"};
    }
    axis = static_cast<int64_t>(i);
  }
  if (axis < 0) {
    throw OnnxObstacle{"without indices"};
  }
  const ValueId index = indices[static_cast<size_t>(axis)].value;
  const auto dtype = call.graph.value(index).dtype;
  if (dtype == at::kBool || dtype == at::kByte) {
    throw OnnxObstacle{"with a mask, because the size then depends on the data"};
  }
  return {
      call.add("Gather", {call.tensor(0), call.to.name_of(index)}, {{"axis", axis}})};
}

// one_hot(x, num_classes)
OnnxNames onnx_one_hot(const OnnxCall& call) {
  const int64_t classes = call.integer(1);
  if (classes < 1) {
    throw OnnxObstacle{
        "without num_classes, because the size then depends on the data"};
  }
  return {call.add(
      "OneHot", {call.tensor(0), call.to.integers({classes}),
                 call.to.constant(at::tensor({0, 1}, call.output().dtype))})};
}

// scatter(x, dim, index, src or value) and scatter_add(x, dim, index, src)
OnnxNames onnx_scatter(const OnnxCall& call) {
  if (call.find("reduce")) {
    throw OnnxObstacle{"with reduce"};
  }
  const bool is_value = call.find("value").has_value();
  auto source = call.operand(3);
  if (is_value) {
    source = call.add("Expand", {source, call.to.sizes(call.shape(2))});
  } else if (!(call.shape(3) == call.shape(2))) {
    throw OnnxObstacle{"with a source that is larger than the index"};
  }
  return {call.add(
      "ScatterElements", {call.tensor(0), call.tensor(2), source},
      {{"axis", call.dimension(call.integer(1))},
       {"reduction", std::string(call.row.type)}})};
}

}  // namespace tandem
