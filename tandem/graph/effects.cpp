#include "tandem/graph/effects.h"

#include <algorithm>
#include <set>
#include <string>

#include "tandem/graph/operators.h"
#include "tandem/graph/random_operators.h"

namespace tandem {

namespace {

// Returns whether the output can be the first argument itself, which the schema does
// not state: dropout in evaluation, and a conversion to the same type.
bool may_return_argument(const Node& node) {
  return operator_row(node.target).has(kIsDropout) || node.target == "aten::type_as";
}

// Returns the value whose memory the outputs of a node share; -1 if there is none.
ValueId shared_value(const Node& node) {
  const auto& schema = schema_of(node);
  const bool returns_argument = may_return_argument(node);
  if (!returns_argument &&
      (schema.returns().empty() || schema.returns()[0].alias_info() == nullptr)) {
    return -1;
  }
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    if (argument.kind == Argument::Kind::value &&
        (returns_argument || schema.arguments()[i].alias_info() != nullptr)) {
      return argument.value;
    }
  }
  return -1;
}

// Returns whether an in-place operator writes all elements without reading them.
bool overwrites(const Node& node) {
  static const std::set<std::string> kOperators = {
      "aten::copy_", "aten::fill_", "aten::zero_"};
  return kOperators.count(node.target) > 0 || draws_random_numbers(node);
}

}  // namespace

Effects::Effects(const Graph& graph)
    : graph_(graph),
      roots_(graph.values.size()),
      is_changed_(graph.values.size()),
      is_scratch_(graph.values.size()) {
  for (size_t i = 0; i < roots_.size(); ++i) {
    roots_[i] = static_cast<ValueId>(i);
  }
  std::vector<bool> is_read(graph.values.size());
  for (const auto& node : graph.nodes) {
    const ValueId from = shared_value(node);
    for (const ValueId id : node.outputs) {
      if (id >= 0 && from >= 0) {
        roots_[static_cast<size_t>(id)] = root(from);
      }
    }
    const ValueId written = written_value(node);
    const ValueId target = written < 0 ? -1 : root(written);
    if (target >= 0) {
      is_changed_[static_cast<size_t>(target)] = true;
      const bool whole =
          overwrites(node) && graph.value(written).shape == graph.value(target).shape;
      if (whole && !is_read[static_cast<size_t>(target)]) {
        is_scratch_[static_cast<size_t>(target)] = true;
      }
    }
    const bool is_view = from >= 0 && written < 0;
    for_each_value(node, [&](ValueId id) {
      if (!is_view || id != from) {
        is_read[static_cast<size_t>(root(id))] = true;
      }
    });
  }
}

ValueId Effects::changed(const Node& node) const {
  const ValueId written = written_value(node);
  return written < 0 ? -1 : root(written);
}

bool Effects::changes_state(const Node& node) const {
  const ValueId id = changed(node);
  return id >= 0 && graph_.value(id).kind != ValueKind::output &&
         graph_.value(id).kind != ValueKind::input;
}

bool Effects::changes_parameter(const Node& node) const {
  const ValueId id = changed(node);
  return id >= 0 && graph_.value(id).kind == ValueKind::parameter;
}

const Node* find_change_of_parameter(const Graph& graph) {
  const Effects effects(graph);
  const auto found = std::find_if(
      graph.nodes.begin(), graph.nodes.end(),
      [&](const Node& node) { return effects.changes_parameter(node); });
  return found == graph.nodes.end() ? nullptr : &*found;
}

}  // namespace tandem
