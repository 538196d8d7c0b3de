#include "tandem/graph/gradient_paths.h"

#include <c10/core/ScalarType.h>

#include <set>

#include "tandem/graph/effects.h"

namespace tandem {

namespace {

// Returns whether the derivative of a node's outputs is 0 everywhere.
bool has_no_derivative(const Graph& graph, const Node& node) {
  static const std::set<std::string> kOperators = {
      "aten::sign",      "aten::sgn",       "aten::round",        "aten::floor",
      "aten::ceil",      "aten::trunc",     "aten::fix",          "aten::sign_",
      "aten::sgn_",      "aten::round_",    "aten::floor_",       "aten::ceil_",
      "aten::trunc_",    "aten::fix_",      "aten::floor_divide", "aten::heaviside",
      "aten::detach",    "aten::detach_",   "aten::bernoulli",    "aten::zeros_like",
      "aten::ones_like", "aten::full_like", "aten::empty_like",   "aten::rand_like",
      "aten::randn_like"};
  if (kOperators.count(node.target) > 0) {
    return true;
  }
  for (const ValueId id : node.outputs) {
    if (id >= 0 && at::isFloatingType(graph.value(id).dtype)) {
      return false;
    }
  }
  // An operator whose output is not used may still change a tensor in place.
  return written_value(node) < 0;
}

// Returns, for each value, whether a gradient of the output reaches it.
std::vector<bool> values_with_gradient(const Graph& graph, const Effects& effects) {
  std::vector<bool> reached(graph.values.size());
  const auto at = [&](ValueId id) {
    return reached[static_cast<size_t>(effects.root(id))];
  };
  reached[static_cast<size_t>(effects.root(graph.output))] = true;
  reached[static_cast<size_t>(graph.output)] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const ValueId changed = effects.changed(*node);
    bool is_needed = changed >= 0 && at(changed);
    for (const ValueId id : node->outputs) {
      is_needed = is_needed || (id >= 0 && reached[static_cast<size_t>(id)]);
    }
    if (is_needed && !has_no_derivative(graph, *node)) {
      for_each_value(*node, [&](ValueId id) {
        reached[static_cast<size_t>(id)] = true;
        // A change in place of a view reaches the tensor that the view shows.
        const auto root = static_cast<size_t>(effects.root(id));
        reached[root] = reached[root] || effects.is_changed(id);
      });
    }
  }
  return reached;
}

}  // namespace

std::vector<UntrainedParameter> find_untrained(const Graph& graph) {
  const auto reached = values_with_gradient(graph, Effects(graph));
  std::vector<UntrainedParameter> found;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.kind != ValueKind::parameter || reached[i] || !value.tensor.defined() ||
        !value.tensor.requires_grad()) {
      continue;
    }
    // The values that depend on the parameter, up to the first operator without
    // derivative.
    std::vector<bool> depends(graph.values.size());
    depends[i] = true;
    UntrainedParameter parameter{value.state_name};
    for (const auto& node : graph.nodes) {
      bool reads = false;
      for_each_value(
          node, [&](ValueId id) { reads = reads || depends[static_cast<size_t>(id)]; });
      if (!reads) {
        continue;
      }
      if (has_no_derivative(graph, node)) {
        parameter.operation = &node;
        break;
      }
      for (const ValueId id : node.outputs) {
        if (id >= 0) {
          depends[static_cast<size_t>(id)] = true;
        }
      }
    }
    found.push_back(parameter);
  }
  return found;
}

}  // namespace tandem
