#include "tandem/graph/onnx.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/graph/checked_operators.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/graph.h"
#include "tandem/graph/onnx_operators.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/random_operators.h"

namespace tandem {

namespace {

bool is_constant(const Graph& graph, const Effects& effects, const Argument& argument) {
  return argument.kind == Argument::Kind::constant ||
         (argument.kind == Argument::Kind::value &&
          graph.value(argument.value).kind == ValueKind::constant &&
          !effects.is_changed(argument.value));
}

bool is_constant(const Graph& graph, const Effects& effects, const Node& node) {
  const auto& row = operator_row(node.target);
  return !row.runs() && !draws_random_numbers(node) && !row.has(kUsesFiles) &&
         node.outputs.size() == 1 && node.outputs[0] >= 0 &&
         !effects.is_changed(node.outputs[0]) && written_value(node) < 0 &&
         std::all_of(
             node.arguments.begin(), node.arguments.end(),
             [&](const Argument& argument) {
               return is_constant(graph, effects, argument);
             });
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
  if (const auto check = argument_check(node.target)) {
    check(schema_of(node), stack);
  }
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(node.target.c_str(), node.overload.c_str())
      .callBoxed(&stack);
  return stack.size() == 1 && stack[0].isTensor() ? stack[0].toTensor() : at::Tensor();
}

// Replaces each node that returns one tensor and whose arguments are all constants by
// its result, which becomes a constant. Examples are arange(64) and the operators on
// its result. Keeps nodes that draw random numbers, and tensors that a node changes in
// place.
Graph with_constant_values(Graph graph) {
  const Effects effects(graph);
  std::vector<Node> nodes;
  for (auto& node : graph.nodes) {
    const ValueId id = node.outputs.empty() ? -1 : node.outputs[0];
    const auto tensor =
        is_constant(graph, effects, node) ? result_of(graph, node) : at::Tensor();
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

constexpr const char* kAdvice =
    "replace the operators in the network, or use another format";

[[noreturn]] void fail_export(
    const std::map<std::string, std::vector<const Node*>>& obstacles) {
  std::vector<std::string> texts;
  for (const auto& [call, nodes] : obstacles) {
    texts.push_back(call + " in " + name_for_messages(*nodes.front()));
    if (nodes.size() > 1) {
      texts.back() += fmt::format(" and {} more", nodes.size() - 1);
    }
  }
  throw ConfigError(fmt::format(
      "[export] tandem has no conversion to ONNX for {}; {}", join(texts, ", for "),
      kAdvice));
}

// Adds a node of the graph. `is_used` is true for values that the model needs.
void add_to(
    OnnxBuilder& builder, const Graph& graph, const Effects& effects, const Node& node,
    const std::vector<bool>& is_used) {
  // Evaluation does not change buffers.
  if (effects.changes_state(node)) {
    // PyTorch changes the parameter in evaluation mode too.
    if (effects.changes_parameter(node)) {
      throw OnnxObstacle{"that changes a parameter"};
    }
    if (effects.is_scratch(effects.changed(node))) {
      throw OnnxObstacle{"that overwrites a buffer"};
    }
    builder.end(node, {builder.name_of(written_value(node))});
    return;
  }
  const OnnxRow* row = onnx_row(node.target);
  if (row == nullptr && draws_random_numbers(node)) {
    throw OnnxObstacle{"because the operator draws random numbers"};
  }
  if (row == nullptr) {
    throw OnnxObstacle{""};
  }
  const OnnxNames results = row->add({graph, node, *row, builder});
  for (size_t i = results.size(); i < node.outputs.size(); ++i) {
    if (node.outputs[i] >= 0 && is_used[static_cast<size_t>(node.outputs[i])]) {
      throw OnnxObstacle{"with its other outputs"};
    }
  }
  builder.end(node, results);
}

// Returns, for each value, whether a node reads it or it is the output.
std::vector<bool> used_values(const Graph& graph) {
  std::vector<bool> used;
  for (const int uses : count_uses(graph)) {
    used.push_back(uses > 0);
  }
  used[static_cast<size_t>(graph.output)] = true;
  return used;
}

}  // namespace

OnnxModel onnx_model(const Graph& of) {
  const Graph graph = with_constant_values(of);
  const Effects effects(graph);
  OnnxBuilder builder(graph, effects);
  const auto is_used = used_values(graph);
  // Nodes by operator and reason.
  std::map<std::string, std::vector<const Node*>> obstacles;
  for (const auto& node : graph.nodes) {
    const bool needed =
        effects.changes_parameter(node) ||
        (written_value(node) >= 0 && !effects.changes_state(node)) ||
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](const ValueId id) {
          return id >= 0 && is_used[static_cast<size_t>(id)];
        });
    if (!needed) {
      continue;
    }
    builder.begin(node);
    try {
      add_to(builder, graph, effects, node, is_used);
    } catch (const OnnxObstacle& obstacle) {
      const std::string reason = obstacle.reason.empty() ? "" : " " + obstacle.reason;
      obstacles[operator_name(node) + reason].push_back(&node);
      builder.end_without_counterpart(node);
    }
  }
  if (!obstacles.empty()) {
    fail_export(obstacles);
  }
  try {
    return builder.take();
  } catch (const OnnxObstacle& obstacle) {
    throw ConfigError(fmt::format(
        "[export] ONNX cannot express the output {}; {}", obstacle.reason, kAdvice));
  }
}

}  // namespace tandem
