#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// A size that may depend on the number of samples in the batch: fixed + per_sample *
/// samples.
struct Size {
  int64_t fixed = 0;
  int64_t per_sample = 0;

  /// Returns the size for a batch of this number of samples.
  int64_t at(int64_t samples) const {
    return fixed + per_sample * samples;
  }
  bool operator==(const Size& other) const {
    return fixed == other.fixed && per_sample == other.per_sample;
  }
};

/// Origin of a value.
enum class ValueKind {
  // The batch: the only input of a graph.
  input,
  parameter,
  // Saved with the parameters, such as batch norm's running statistics.
  buffer,
  // A tensor that is not saved: a non-persistent buffer or a constant.
  constant,
  // Output of a node.
  output,
};

/// A tensor in a graph.
struct Value {
  ValueKind kind = ValueKind::output;
  // Unique in the graph.
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<Size> shape;
  // Name in Python's state_dict(), for a parameter or a buffer. Name of the attribute
  // of Python's module, for a constant; may be "".
  std::string state_name = {};
  // The tensor of a parameter, buffer or constant. Shared with everything that uses the
  // graph.
  at::Tensor tensor = {};
};

/// Index in Graph::values.
using ValueId = int64_t;

/// An argument of an operator.
struct Argument {
  enum class Kind {
    // A number, a string, a list of numbers, None, ...
    constant,
    // A tensor: value `value`.
    value,
    // An integer that may depend on the number of samples.
    size,
    // A list of arguments: of tensors (or None), or of sizes.
    list,
  };
  Kind kind = Kind::constant;
  c10::IValue constant = {};
  ValueId value = -1;
  Size size = {};
  std::vector<Argument> list = {};

  static Argument of(c10::IValue constant);
  static Argument of_value(ValueId value);
  static Argument of_size(Size size);
  static Argument of_list(std::vector<Argument> list);
};

/// A call of an operator.
struct Node {
  // Unique in the graph, such as "conv2d_1".
  std::string name;
  // Operator and overload, such as "aten::add" and "Tensor".
  std::string target;
  std::string overload;
  // One for each argument of the operator's schema, in its order, defaults included.
  std::vector<Argument> arguments;
  // One value for each tensor that the operator returns. -1: the graph does not use
  // the tensor. If the operator returns a list, its elements.
  std::vector<ValueId> outputs;
  // Path of the module that contains the call, such as "layer1.0.conv1"; may be "".
  std::string module = {};
  // Source line of the call, such as "net.py:12: x = self.fc(x)"; may be "".
  std::string source = {};
  // Index of the node in the whole graph. Dropout masks depend on the index, so the
  // nodes of a pipeline's stage keep it.
  int64_t number = 0;
};

/// A network: operators of ATen on tensors, in order of execution.
///
/// Source of the form: torch.fx and torch/_export/serde/schema.py. Unlike there, sizes
/// are not values: a size is a linear function of the number of samples, so that
/// a graph can be divided wherever a single tensor crosses.
struct Graph {
  // The input first, then parameters and buffers in order of registration.
  std::vector<Value> values;
  std::vector<Node> nodes;
  ValueId input = 0;
  ValueId output = 0;
  // A second name of a parameter or buffer (tied weights), and the value.
  struct Alias {
    std::string state_name;
    ValueId value;
  };
  std::vector<Alias> aliases;

  const Value& value(ValueId id) const {
    return values[static_cast<size_t>(id)];
  }
};

/// Returns the shape of a tensor whose sizes do not depend on the number of samples.
[[nodiscard]] std::vector<Size> fixed_shape(at::IntArrayRef sizes);

/// Returns the shape of a batch of samples of this shape: [N, ...].
[[nodiscard]] std::vector<Size> batch_shape(at::IntArrayRef sample);

/// Returns the value of a tensor with this name in Python's state_dict(), or of a
/// constant.
[[nodiscard]] Value value_of(
    ValueKind kind, const std::string& name, const at::Tensor& tensor);

/// Adds a value and returns its id.
ValueId add_value(Graph& graph, Value value);

/// Adds a node that calls an operator, with outputs of these values. `arguments` has
/// the first arguments of the operator's schema; the others get their defaults. Returns
/// the node; its number is its index.
///
/// Throws ConfigError if LibTorch has no such operator, or if an argument without
/// default is missing.
Node& add_node(
    Graph& graph, const std::string& target, const std::string& overload,
    std::vector<Argument> arguments, const std::vector<ValueId>& outputs);

/// Calls `use` with each value that an argument or one of its elements refers to.
template <typename Use>
void for_each_value(const Argument& argument, const Use& use) {
  if (argument.kind == Argument::Kind::value) {
    use(argument.value);
  }
  for (const auto& element : argument.list) {
    for_each_value(element, use);
  }
}

/// Calls `use` with each value that a node reads.
template <typename Use>
void for_each_value(const Node& node, const Use& use) {
  for (const auto& argument : node.arguments) {
    for_each_value(argument, use);
  }
}

/// Checks a graph: every operator exists, every argument has the type of the operator's
/// schema, every value is computed before it is used and only once, names are unique,
/// and every node that changes a tensor in place changes a buffer or the output of
/// another node. Throws ConfigError with the node and its source line.
void verify(const Graph& graph);

/// Returns the graph as text, one line per value and node: shapes, operators and
/// arguments, without the values of parameters and buffers. Constants are in it as
/// hashes. Two ranks with equal texts compute the same function of their parameters.
[[nodiscard]] std::string describe(const Graph& graph);

/// Returns the parameters, or the buffers, in order of registration, with the names of
/// Python's state_dict(). Tied weights occur under each name.
[[nodiscard]] std::vector<NamedTensor> parameters_of(const Graph& graph);
[[nodiscard]] std::vector<NamedTensor> buffers_of(const Graph& graph);

/// Returns whether a log-softmax computes the output.
[[nodiscard]] bool ends_in_log_softmax(const Graph& graph);

/// Returns the operator of a node with its overload, such as "aten::add.Tensor".
[[nodiscard]] std::string operator_name(const Node& node);

/// Returns the name of a node in messages and for --cut: its module, or its own name if
/// it has no module.
[[nodiscard]] const std::string& layer_name(const Node& node);

/// Returns, for each value, the number of times that nodes read it.
[[nodiscard]] std::vector<int> count_uses(const Graph& graph);

/// Returns the value that a node changes in place; -1 if it changes none.
[[nodiscard]] ValueId written_value(const Node& node);

/// Returns whether a node changes a buffer in place, such as batch norm's counter.
[[nodiscard]] bool changes_buffer(const Graph& graph, const Node& node);

/// Returns whether a node reads a parameter.
[[nodiscard]] bool has_parameters(const Graph& graph, const Node& node);

/// Returns the number of elements of the parameters that a node reads.
[[nodiscard]] int64_t count_parameters(const Graph& graph, const Node& node);

/// Returns the node as messages name it: "conv2d_1 (net.py:12: x = self.conv1(x))".
[[nodiscard]] std::string name_for_messages(const Node& node);

/// Returns a shape as text, with N for the number of samples: "[N, 64, 8*N]".
[[nodiscard]] std::string text_of(const std::vector<Size>& shape);

}  // namespace tandem
