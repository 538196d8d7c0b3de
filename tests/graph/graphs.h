#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// Builds graphs for tests, with outputs in float64.
class GraphBuilder {
 public:
  /// `sample_shape` is the shape of one sample of the input.
  explicit GraphBuilder(const std::vector<int64_t>& sample_shape) {
    Value input;
    input.kind = ValueKind::input;
    input.name = "x";
    input.dtype = at::kDouble;
    input.shape = batch_of(sample_shape);
    graph_.input = add_value(graph_, std::move(input));
  }

  static std::vector<Size> batch_of(const std::vector<int64_t>& sample_shape) {
    std::vector<Size> shape = {{0, 1}};
    for (const int64_t size : sample_shape) {
      shape.push_back({size, 0});
    }
    return shape;
  }

  ValueId input() const {
    return graph_.input;
  }

  ValueId state(
      const std::string& name, const at::Tensor& tensor,
      ValueKind kind = ValueKind::parameter) {
    Value value;
    value.kind = kind;
    value.name = value.state_name = name;
    value.dtype = tensor.scalar_type();
    for (const int64_t size : tensor.sizes()) {
      value.shape.push_back({size, 0});
    }
    value.tensor = tensor;
    return add_value(graph_, std::move(value));
  }

  /// Calls an operator whose output has the samples' shape `sample_shape`.
  ValueId call(
      const std::string& target, const std::string& overload,
      std::vector<Argument> arguments, const std::vector<int64_t>& sample_shape,
      const std::string& module = "") {
    Value value;
    value.name = "v" + std::to_string(graph_.values.size());
    value.dtype = at::kDouble;
    value.shape = batch_of(sample_shape);
    const ValueId id = add_value(graph_, std::move(value));
    add_node(graph_, target, overload, std::move(arguments), {id}).module = module;
    graph_.output = id;
    return id;
  }

  ValueId linear(ValueId x, const std::string& name, const at::Tensor& weight) {
    const ValueId parameter = state(name + ".weight", weight);
    return call(
        "aten::linear", "", {Argument::of_value(x), Argument::of_value(parameter)},
        {weight.size(0)}, name);
  }

  Graph& graph() {
    return graph_;
  }

 private:
  Graph graph_;
};

}  // namespace tandem
