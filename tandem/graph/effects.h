#pragma once

#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// Values of a graph that may share memory, according to the schemas of the operators,
/// and the nodes that change them in place.
///
/// The root of a value is the value whose memory it shares: the root of `buffer[0]` is
/// the buffer. The root of a value with its own memory is the value itself.
///
/// Source: torch/_C/_schema, alias annotations such as "Tensor(a!)".
class Effects {
 public:
  explicit Effects(const Graph& graph);

  ValueId root(ValueId id) const {
    return roots_[static_cast<size_t>(id)];
  }

  /// Returns the root of the value that a node changes in place; -1 if it changes none.
  ValueId changed(const Node& node) const;

  /// Returns whether a node changes a parameter, a buffer or a constant in place,
  /// possibly through a view.
  bool changes_state(const Node& node) const;

  /// Returns whether a node changes a parameter in place, as the lookup of an embedding
  /// with max_norm does.
  bool changes_parameter(const Node& node) const;

  /// Returns whether a node changes the memory of a value in place.
  bool is_changed(ValueId id) const {
    return is_changed_[static_cast<size_t>(root(id))];
  }

  /// Returns whether nodes overwrite a buffer or constant completely before they read
  /// it, so that no forward pass depends on its old elements.
  bool is_scratch(ValueId id) const {
    return is_scratch_[static_cast<size_t>(id)];
  }

 private:
  const Graph& graph_;
  std::vector<ValueId> roots_;
  std::vector<bool> is_changed_;
  std::vector<bool> is_scratch_;
};

/// Returns the first node that changes a parameter in the forward pass; null if there
/// is none.
[[nodiscard]] const Node* find_change_of_parameter(const Graph& graph);

}  // namespace tandem
