#include "tandem/graph/effects.h"

#include <set>
#include <string>

#include "tandem/graph/operators.h"
#include "tandem/graph/random_operators.h"

namespace tandem {

namespace {

// Returns the argument whose memory the outputs of a node share; null if there is none.
const Argument* shared_argument(const Node& node) {
  if (operator_row(node.target).has(kIsDropout)) {
    // In evaluation, the output is the input.
    return &node.arguments[0];
  }
  const auto& schema = schema_of(node);
  if (schema.returns().empty() || schema.returns()[0].alias_info() == nullptr) {
    return nullptr;
  }
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    if (schema.arguments()[i].alias_info() != nullptr &&
        node.arguments[i].kind == Argument::Kind::value) {
      return &node.arguments[i];
    }
  }
  return nullptr;
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
    const Argument* shared = shared_argument(node);
    const ValueId from =
        shared != nullptr && shared->kind == Argument::Kind::value ? shared->value : -1;
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
      is_read[static_cast<size_t>(root(id))] =
          is_read[static_cast<size_t>(root(id))] || !(is_view && id == from);
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

const Node* find_change_of_parameter(const Graph& graph) {
  const Effects effects(graph);
  for (const auto& node : graph.nodes) {
    const ValueId id = effects.changed(node);
    if (id >= 0 && graph.value(id).kind == ValueKind::parameter) {
      return &node;
    }
  }
  return nullptr;
}

}  // namespace tandem
