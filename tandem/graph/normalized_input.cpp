#include "tandem/graph/normalized_input.h"

#include <ATen/ops/tensor.h>

#include <utility>

namespace tandem {

namespace {

// Replaces a value in an argument and in the elements of its list.
void replace(Argument& argument, ValueId before, ValueId after) {
  if (argument.kind == Argument::Kind::value && argument.value == before) {
    argument.value = after;
  }
  for (auto& element : argument.list) {
    replace(element, before, after);
  }
}

// Adds nodes that normalize a value.
class Normalizer {
 public:
  Normalizer(Graph& graph, ValueId value)
      : graph_(graph),
        dtype_(graph.value(value).dtype),
        shape_(graph.value(value).shape),
        result_(value) {}

  // Adds a call of an operator to the result of the last call.
  void call(
      const std::string& name, const std::string& target, const std::string& overload,
      Argument argument) {
    Value value = {ValueKind::output, name, dtype_, shape_};
    const ValueId output = add_value(graph_, std::move(value));
    add_node(
        graph_, target, overload, {Argument::of_value(result_), std::move(argument)},
        {output})
        .name = name;
    result_ = output;
  }

  // Returns a constant that is broadcast over the samples.
  Argument numbers(const std::string& name, const std::vector<double>& values) {
    std::vector<int64_t> sizes(shape_.size() - 1, 1);
    sizes[0] = -1;
    const auto tensor = at::tensor(values, at::kDouble).view(sizes).to(dtype_);
    return Argument::of_value(
        add_value(graph_, value_of(ValueKind::constant, name, tensor)));
  }

  ValueId result() const {
    return result_;
  }

 private:
  Graph& graph_;
  at::ScalarType dtype_;
  std::vector<Size> shape_;
  ValueId result_;
};

}  // namespace

Graph with_normalized_input(Graph graph, const InputNormalization& normalization) {
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  Normalizer normalizer(graph, graph.input);
  const int64_t pad = normalization.pad;
  if (pad > 0) {
    normalizer.call(
        "padded_input", "aten::constant_pad_nd", "",
        Argument::of(std::vector<int64_t>(4, pad)));
    auto& shape = graph.values[static_cast<size_t>(graph.input)].shape;
    shape[shape.size() - 1].fixed -= 2 * pad;
    shape[shape.size() - 2].fixed -= 2 * pad;
  }
  if (normalization.unit != 1) {
    normalizer.call(
        "scaled_input", "aten::div", "Scalar", Argument::of(normalization.unit));
  }
  normalizer.call(
      "centered_input", "aten::sub", "Tensor",
      normalizer.numbers("input_mean", normalization.mean));
  normalizer.call(
      "normalized_input", "aten::div", "Tensor",
      normalizer.numbers("input_std", normalization.std));
  for (auto& node : nodes) {
    for (auto& argument : node.arguments) {
      replace(argument, graph.input, normalizer.result());
    }
    graph.nodes.push_back(std::move(node));
  }
  if (graph.output == graph.input) {
    graph.output = normalizer.result();
  }
  return graph;
}

Graph with_restored_output(
    Graph graph, const std::vector<double>& mean, const std::vector<double>& std) {
  Normalizer normalizer(graph, graph.output);
  normalizer.call(
      "scaled_output", "aten::mul", "Tensor", normalizer.numbers("target_std", std));
  normalizer.call(
      "restored_output", "aten::add", "Tensor",
      normalizer.numbers("target_mean", mean));
  graph.output = normalizer.result();
  return graph;
}

}  // namespace tandem
