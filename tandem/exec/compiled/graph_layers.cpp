#include "tandem/exec/compiled/graph_layers.h"

#include <fmt/core.h>

#include <map>

#include "tandem/base/text.h"
#include "tandem/exec/compiled/node_reader.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

constexpr const char* kCounter = ".num_batches_tracked";

// conv2d(input, weight, bias, stride, padding, dilation, groups)
void read_conv2d(NodeReader& reader) {
  const Value* weight = reader.state(1, "weight");
  reader.state(2, "bias");
  reader.expect_square(3, "stride", 1);
  reader.layer.padding = reader.square(4, "padding");
  reader.expect_square(5, "dilation", 1);
  reader.expect(reader.number(6) == 1, "it has groups");
  if (weight != nullptr) {
    const auto& shape = weight->shape;
    reader.layer.out = shape[0].fixed;
    reader.layer.in = shape[1].fixed;
    reader.layer.kernel = shape[2].fixed;
    reader.expect(shape[2] == shape[3], "its kernel is not square");
  }
}

// linear(input, weight, bias)
void read_linear(NodeReader& reader) {
  const Value* weight = reader.state(1, "weight");
  reader.state(2, "bias");
  reader.expect(reader.input_dimensions() == 2, "its input is not samples x features");
  if (weight != nullptr) {
    reader.layer.out = weight->shape[0].fixed;
    reader.layer.in = weight->shape[1].fixed;
  }
}

// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
// cudnn_enabled)
void read_batch_norm(NodeReader& reader) {
  const Value* weight = reader.state(1, "weight");
  reader.state(2, "bias");
  reader.state(3, "running_mean");
  reader.state(4, "running_var");
  reader.expect(
      reader.number(6) == kBatchNormMomentum,
      fmt::format("its momentum is not {}", kBatchNormMomentum));
  reader.expect(
      reader.number(7) == kBatchNormEpsilon,
      fmt::format("its eps is not {}", kBatchNormEpsilon));
  reader.expect(reader.input_dimensions() == 4, "its input is not images");
  if (weight != nullptr) {
    reader.layer.in = reader.layer.out = weight->shape[0].fixed;
  }
}

// max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)
void read_max_pool2d(NodeReader& reader) {
  reader.layer.kernel = reader.square(1, "kernel");
  reader.layer.stride = reader.square(2, "stride", reader.layer.kernel);
  reader.expect(
      reader.layer.stride == reader.layer.kernel, "its windows overlap or have gaps");
  reader.expect_square(3, "padding", 0);
  reader.expect_square(4, "dilation", 1);
  reader.expect(!reader.flag(5), "it rounds sizes up");
}

// dropout(input, p, train), feature_dropout(input, p, train)
void read_dropout(NodeReader& reader) {
  reader.layer.p = reader.number(1);
}

void read_dropout2d(NodeReader& reader) {
  reader.layer.p = reader.number(1);
  const size_t dimensions = reader.input_dimensions();
  reader.expect(
      dimensions == 4 || dimensions == 2, "its input is neither images nor features");
}

// flatten(input, start_dim, end_dim), view(input, size) and reshape(input, shape) that
// make one row from each sample
void read_flatten(NodeReader& reader) {
  const ValueId id = reader.node().outputs[0];
  const auto& shape = reader.graph().value(id).shape;
  reader.expect(
      shape.size() == 2 && shape[0] == Size{0, 1},
      "it does not make one row from each sample");
}

// log_softmax(input, dim, dtype)
void read_log_softmax(NodeReader& reader) {
  const double dimension = reader.number(1);
  reader.expect(
      dimension == 1 || (dimension == -1 && reader.input_dimensions() == 2),
      "its dimension is not 1");
  reader.expect(reader.constant(2).isNone(), "it has a dtype");
}

void read_nothing(NodeReader&) {}

struct ReaderRow {
  LayerKind kind;
  void (*read)(NodeReader&);
};

const std::map<std::string, ReaderRow>& reader_rows() {
  static const std::map<std::string, ReaderRow> rows = {
      {"aten::conv2d", {LayerKind::conv2d, &read_conv2d}},
      {"aten::linear", {LayerKind::linear, &read_linear}},
      {"aten::batch_norm", {LayerKind::batch_norm2d, &read_batch_norm}},
      {"aten::relu", {LayerKind::relu, &read_nothing}},
      {"aten::relu_", {LayerKind::relu, &read_nothing}},
      {"aten::max_pool2d", {LayerKind::max_pool2d, &read_max_pool2d}},
      {"aten::dropout", {LayerKind::dropout, &read_dropout}},
      {"aten::dropout_", {LayerKind::dropout, &read_dropout}},
      {"aten::feature_dropout", {LayerKind::dropout2d, &read_dropout2d}},
      {"aten::flatten", {LayerKind::flatten, &read_flatten}},
      {"aten::view", {LayerKind::flatten, &read_flatten}},
      {"aten::reshape", {LayerKind::flatten, &read_flatten}},
      {"aten::log_softmax", {LayerKind::log_softmax, &read_log_softmax}},
  };
  return rows;
}

NodeReader read(const Graph& graph, const Node& node) {
  NodeReader reader(graph, node);
  const auto row = reader_rows().find(node.target);
  if (row == reader_rows().end()) {
    reader.expect(false, node.target + " has no compiled kernel");
    return reader;
  }
  reader.layer.kind = row->second.kind;
  row->second.read(reader);
  return reader;
}

// Batch norm's kernel counts batches itself.
bool counts_batches(const Graph& graph, const Node& node) {
  const Argument& counter = node.arguments[0];
  return node.target == "aten::add_" && counter.kind == Argument::Kind::value &&
         graph.value(counter.value).kind == ValueKind::buffer &&
         ends_with(graph.value(counter.value).state_name, kCounter);
}

// Returns the name of a parameter that this node and another one use, or "".
std::string shared_parameter(
    const Graph& graph, const Node& node, const std::vector<int>& uses) {
  for (const auto& argument : node.arguments) {
    if (argument.kind == Argument::Kind::value) {
      const Value& value = graph.value(argument.value);
      if (value.kind == ValueKind::parameter &&
          uses[static_cast<size_t>(argument.value)] > 1) {
        return value.state_name;
      }
    }
  }
  return "";
}

}  // namespace

std::string node_obstacle(const Graph& graph, const Node& node) {
  return counts_batches(graph, node) ? "" : read(graph, node).obstacle;
}

GraphLayers layers_in(const Graph& graph) {
  GraphLayers result;
  ValueId last = graph.input;
  const auto uses = count_uses(graph);
  for (const auto& node : graph.nodes) {
    if (counts_batches(graph, node)) {
      continue;
    }
    const NodeReader reader = read(graph, node);
    result.obstacle = reader.obstacle;
    if (result.obstacle.empty() && uses[static_cast<size_t>(last)] > 1) {
      result.obstacle = "its input has other uses, such as a skip connection";
    }
    // Each layer's first backward overwrites the gradients of its parameters.
    const auto shared = shared_parameter(graph, node, uses);
    if (result.obstacle.empty() && !shared.empty()) {
      result.obstacle = "another node uses its parameter " + shared;
    }
    const bool follows = !node.arguments.empty() &&
                         node.arguments[0].kind == Argument::Kind::value &&
                         node.arguments[0].value == last;
    if (result.obstacle.empty() && !follows) {
      result.obstacle = "it does not follow the node before it";
    }
    if (!result.obstacle.empty()) {
      result.obstacle = name_for_messages(node) + ": " + result.obstacle;
      return result;
    }
    result.layers.push_back(reader.layer);
    last = node.outputs[0];
  }
  if (last != graph.output) {
    result.obstacle = "its output is not that of the last node";
  }
  return result;
}

}  // namespace tandem
