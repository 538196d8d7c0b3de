#include "tandem/graph/onnx.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/graph/constant_values.h"
#include "tandem/graph/onnx_operators.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

// Returns whether the outputs share the memory of the first argument in evaluation
// mode.
bool shares_memory(const Node& node) {
  const auto& row = operator_row(node.target);
  return row.has(kIsView) || row.has(kIsDropout) || node.target == "aten::to" ||
         node.target == "aten::type_as" || node.target == "aten::expand_as";
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
      "[export] ONNX has no counterpart of {}; {}", join(texts, ", of "), kAdvice));
}

// Adds a node of the graph. `is_used` is true for values that the model needs.
void add_to(
    OnnxBuilder& builder, const Graph& graph, const Node& node,
    const std::vector<bool>& is_used) {
  const ValueId written = written_value(node);
  // Evaluation does not change buffers.
  if (changes_buffer(graph, node)) {
    builder.end(node, {builder.name_of(written)}, true);
    return;
  }
  const OnnxRow* row = onnx_row(node.target);
  if (row == nullptr) {
    throw OnnxObstacle{""};
  }
  const OnnxNames results = row->add({graph, node, *row, builder});
  for (size_t i = results.size(); i < node.outputs.size(); ++i) {
    if (node.outputs[i] >= 0 && is_used[static_cast<size_t>(node.outputs[i])]) {
      throw OnnxObstacle{"with its other outputs"};
    }
  }
  builder.end(node, results, shares_memory(node));
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
  OnnxBuilder builder(graph);
  const auto is_used = used_values(graph);
  // Nodes by operator and reason.
  std::map<std::string, std::vector<const Node*>> obstacles;
  for (const auto& node : graph.nodes) {
    const bool needed =
        (written_value(node) >= 0 && !changes_buffer(graph, node)) ||
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](const ValueId id) {
          return id >= 0 && is_used[static_cast<size_t>(id)];
        });
    if (!needed) {
      continue;
    }
    builder.begin(node);
    try {
      add_to(builder, graph, node, is_used);
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
