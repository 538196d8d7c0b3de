#include "tandem/graph/constant_values.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tandem/graph/operators.h"

namespace tandem {

namespace {

std::set<ValueId> written_values(const Graph& graph) {
  std::set<ValueId> written;
  for (const auto& node : graph.nodes) {
    written.insert(written_value(node));
  }
  return written;
}

bool is_constant(const Graph& graph, const Argument& argument) {
  return argument.kind == Argument::Kind::constant ||
         (argument.kind == Argument::Kind::value &&
          graph.value(argument.value).kind == ValueKind::constant);
}

bool is_constant(
    const Graph& graph, const Node& node, const std::set<ValueId>& written) {
  const auto& row = operator_row(node.target);
  return row.run == nullptr && !row.has(kIsRandom) && !row.has(kUsesFiles) &&
         node.outputs.size() == 1 && written.count(node.outputs[0]) == 0 &&
         written_value(node) < 0 &&
         std::all_of(
             node.arguments.begin(), node.arguments.end(),
             [&](const Argument& argument) { return is_constant(graph, argument); });
}

// Returns the result of an operator that returns one tensor; undefined for another.
at::Tensor result_of(const Graph& graph, const Node& node) {
  std::vector<c10::IValue> stack;
  for (const auto& argument : node.arguments) {
    stack.push_back(
        argument.kind == Argument::Kind::value
            ? c10::IValue(graph.value(argument.value).tensor)
            : argument.constant);
  }
  const c10::AutoGradMode no_grad(false);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(node.target.c_str(), node.overload.c_str())
      .callBoxed(&stack);
  return stack.size() == 1 && stack[0].isTensor() ? stack[0].toTensor() : at::Tensor();
}

}  // namespace

Graph with_constant_values(Graph graph) {
  const auto written = written_values(graph);
  std::vector<Node> nodes;
  for (auto& node : graph.nodes) {
    const ValueId id = node.outputs.empty() ? -1 : node.outputs[0];
    const auto tensor = id >= 0 && is_constant(graph, node, written)
                            ? result_of(graph, node)
                            : at::Tensor();
    if (!tensor.defined()) {
      nodes.push_back(std::move(node));
      continue;
    }
    Value& value = graph.values[static_cast<size_t>(id)];
    value.kind = ValueKind::constant;
    value.tensor = tensor.contiguous();
  }
  graph.nodes = std::move(nodes);
  return graph;
}

}  // namespace tandem
