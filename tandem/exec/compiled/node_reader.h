#pragma once

#include <cstdint>
#include <string>

#include "tandem/graph/graph.h"
#include "tandem/model/layers.h"

namespace tandem {

/// Reads the arguments of a node into a layer of the compiled executor. The functions
/// take the index of an argument. `graph` and `node` must outlive the reader.
class NodeReader {
 public:
  NodeReader(const Graph& graph, const Node& node) : graph_(graph), node_(node) {
    layer.place = node.number;
  }

  Layer layer;
  // First reason why no kernel supports the node, such as "it has groups"; "" if there
  // is none.
  std::string obstacle;

  /// Makes `otherwise` the obstacle if `holds` is false and there is no obstacle yet.
  void expect(bool holds, const std::string& otherwise) {
    if (!holds && obstacle.empty()) {
      obstacle = otherwise;
    }
  }

  const c10::IValue& constant(size_t index) const {
    return node_.arguments[index].constant;
  }

  /// Returns a number; -1 if the argument is not a number.
  double number(size_t index) const;

  bool flag(size_t index) const {
    return constant(index).isBool() && constant(index).toBool();
  }

  /// Returns the size of a square window, or a stride; `missing` for an empty list.
  /// `what` names the argument in the obstacle.
  int64_t square(size_t index, const char* what, int64_t missing = -1);

  /// Expects square() to be `wanted`.
  void expect_square(size_t index, const char* what, int64_t wanted);

  /// Returns a tensor; null if the argument is not a tensor.
  const Value* value(size_t index) const;

  /// Expects the layer's parameter or buffer of this name, and returns it; null if the
  /// argument is another value. The first call sets the layer's name.
  const Value* state(size_t index, const std::string& name);

  size_t input_dimensions() const {
    return value(0) == nullptr ? 0 : value(0)->shape.size();
  }

  const Graph& graph() const {
    return graph_;
  }
  const Node& node() const {
    return node_;
  }

 private:
  const Graph& graph_;
  const Node& node_;
};

}  // namespace tandem
