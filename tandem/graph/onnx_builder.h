#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/formats/onnx_file.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/graph.h"

namespace tandem {

/// Reason why ONNX cannot express a call of an operator, such as "with ceil_mode".
struct OnnxObstacle {
  std::string reason;
};

/// Names of ONNX values.
using OnnxNames = std::vector<std::string>;

/// Builds the ONNX model of a graph, node by node.
class OnnxBuilder {
 public:
  OnnxBuilder(const Graph& graph, const Effects& effects);

  /// Begins a node of the graph. add() and constant() name ONNX nodes and values after
  /// it.
  void begin(const Node& node);

  /// Returns the ONNX name of a value. If the value is a parameter, buffer or constant,
  /// adds it to the model as an initializer. Throws OnnxObstacle if an operator has
  /// changed the memory of the value in place.
  std::string name_of(ValueId id);

  /// Adds a node with one output and returns the name of the output.
  std::string add(
      const std::string& type, OnnxNames inputs,
      std::vector<OnnxAttribute> attributes = {});

  /// Adds a node with `count` outputs and returns their names.
  OnnxNames add_several(
      const std::string& type, OnnxNames inputs, size_t count,
      std::vector<OnnxAttribute> attributes = {});

  /// Functions that add an initializer and return its name. The initializer is a
  /// tensor, a list of integers (int64), or a number without dimensions.
  std::string constant(const at::Tensor& tensor);
  std::string integers(const std::vector<int64_t>& values);
  std::string number(double value, at::ScalarType dtype);

  /// Adds a list of sizes (int64) and returns its name. Sizes that depend on the number
  /// of samples are computed from the input's shape.
  std::string sizes(const std::vector<Size>& sizes);

  /// Adds a node that changes the shape of a value, and returns the name of the result.
  std::string reshape(const std::string& value, const std::vector<Size>& shape);

  /// Ends a node of the graph. Its first outputs are the ONNX values `outputs`, which
  /// get the names of the graph's values.
  void end(const Node& node, const OnnxNames& outputs);

  /// Ends a node whose outputs no later node can use.
  void end_without_counterpart(const Node& node);

  /// Returns the model. Throws OnnxObstacle like name_of().
  OnnxModel take();

 private:
  std::string unique(const std::string& name);
  void add_tensor(const std::string& name, const at::Tensor& tensor);
  std::string samples();
  std::string renamed(const Node& node, size_t index, const std::string& value);
  void overwrite(const Node& node, ValueId written);

  const Graph& graph_;
  const Effects& effects_;
  OnnxModel model_;
  // Prefix of names.
  std::string prefix_;
  // First ONNX node of the current node of the graph.
  size_t first_ = 0;
  std::set<std::string> taken_;
  // ONNX name of each value of the graph; "" for a value without a name.
  OnnxNames names_;
  // Node that has changed the memory of a value in place; null if there is none.
  std::vector<const Node*> changed_by_;
  // Names of state_dict(), reserved for parameters and buffers.
  std::map<ValueId, std::string> state_names_;
  std::string samples_;
};

}  // namespace tandem
