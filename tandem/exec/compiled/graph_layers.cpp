#include "tandem/exec/compiled/graph_layers.h"

#include <algorithm>

#include "tandem/base/text.h"
#include "tandem/exec/compiled/kernel_rows.h"
#include "tandem/exec/compiled/node_reader.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

constexpr const char* kCounter = ".num_batches_tracked";

NodeReader read(const Graph& graph, const Node& node) {
  NodeReader reader(graph, node);
  if (node.outputs.empty() || node.outputs[0] < 0) {
    reader.expect(false, "no node uses its output");
    return reader;
  }
  for (const auto& row : kernel_rows()) {
    const auto& names = row.operators;
    if (std::find(names.begin(), names.end(), node.target) != names.end()) {
      reader.layer.kind = row.kind;
      if (row.read != nullptr) {
        row.read(reader);
      }
      return reader;
    }
  }
  reader.expect(false, node.target + " has no compiled kernel");
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
    NodeReader reader = read(graph, node);
    reader.expect(
        uses[static_cast<size_t>(last)] <= 1,
        "its input has other uses, such as a skip connection");
    // Each layer's first backward overwrites the gradients of its parameters.
    const auto shared = shared_parameter(graph, node, uses);
    reader.expect(shared.empty(), "another node uses its parameter " + shared);
    const bool follows = !node.arguments.empty() &&
                         node.arguments[0].kind == Argument::Kind::value &&
                         node.arguments[0].value == last;
    reader.expect(follows, "it does not follow the node before it");
    if (!reader.obstacle.empty()) {
      result.obstacle = name_for_messages(node) + ": " + reader.obstacle;
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
