#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/graph/graph.h"
#include "tandem/graph/operators.h"
#include "tandem/model/graph_model.h"

namespace tandem {

/// Returns a float64 tensor with values between -1 and 1.
inline at::Tensor waves(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return at::linspace(0, 9, count, at::kDouble).sin().view(shape);
}

/// Returns the context of a forward pass in training or evaluation mode.
inline ForwardContext in_mode(bool training) {
  ForwardContext context;
  context.training = training;
  return context;
}

/// Expects equal names, values and `requires_grad`.
inline void expect_equal_tensors(
    const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_TRUE(found[i].tensor.equal(expected[i].tensor)) << found[i].name;
    EXPECT_EQ(found[i].tensor.requires_grad(), expected[i].tensor.requires_grad());
  }
}

/// Builds graphs for tests. The outputs of all nodes are float64.
class GraphBuilder {
 public:
  /// Adds the input of the graph. `sample_shape` is the shape of one sample of the
  /// input.
  explicit GraphBuilder(const std::vector<int64_t>& sample_shape) {
    Value input;
    input.kind = ValueKind::input;
    input.name = "x";
    input.dtype = at::kDouble;
    input.shape = batch_shape(sample_shape);
    graph_.input = add_value(graph_, std::move(input));
  }

  ValueId input() const {
    return graph_.input;
  }

  ValueId state(
      const std::string& name, const at::Tensor& tensor,
      ValueKind kind = ValueKind::parameter) {
    return add_value(graph_, value_of(kind, name, tensor));
  }

  /// Adds a value for an output of a node, and returns its id.
  ValueId output(const std::string& name, const std::vector<Size>& shape) {
    return add_value(graph_, {ValueKind::output, name, at::kDouble, shape});
  }

  /// Adds a call of an operator. Its output has the shape `shape` and becomes the
  /// output of the graph.
  ValueId add(
      const std::string& target, const std::string& overload,
      std::vector<Argument> arguments, const std::vector<Size>& shape,
      const std::string& module = "") {
    const ValueId id = output("v" + std::to_string(graph_.values.size()), shape);
    add_node(graph_, target, overload, std::move(arguments), {id}).module = module;
    graph_.output = id;
    return id;
  }

  /// Adds a call of an operator. `sample_shape` is the shape of one sample of its
  /// output.
  ValueId call(
      const std::string& target, const std::string& overload,
      std::vector<Argument> arguments, const std::vector<int64_t>& sample_shape,
      const std::string& module = "") {
    return add(
        target, overload, std::move(arguments), batch_shape(sample_shape), module);
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

  /// Converts the graph to float32, and makes all parameters trainable.
  Graph& trainable() {
    convert(graph_, at::kFloat);
    for (auto& value : graph_.values) {
      if (value.kind == ValueKind::parameter) {
        value.tensor.set_requires_grad(true);
      }
    }
    return graph_;
  }

 private:
  Graph graph_;
};

}  // namespace tandem
