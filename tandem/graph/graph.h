#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// A size that may depend on the number of samples in the batch: fixed + per_sample *
/// samples.
struct Size {
  int64_t fixed = 0;
  int64_t per_sample = 0;

  /// Returns the size for a batch of `samples` samples.
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
  // A tensor that is saved with the parameters, such as batch norm's running
  // statistics.
  buffer,
  // A tensor that is not saved: a non-persistent buffer or a constant.
  constant,
  // Output of a node.
  output,
};

/// A tensor in a graph.
struct Value {
  ValueKind kind = ValueKind::output;
  // Name, unique in the graph.
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<Size> shape;
  // Name in Python's state_dict(), for a parameter or a buffer. Name of the attribute
  // of Python's module, for a constant; may be "".
  std::string state_name = {};
  // Tensor of a parameter, buffer or constant. Copies of the graph and models that run
  // it share this tensor.
  at::Tensor tensor = {};
};

/// Index of a value in Graph::values.
using ValueId = int64_t;

/// An argument of an operator.
struct Argument {
  enum class Kind {
    // A constant, such as a number, a string, a list of numbers, or None.
    constant,
    // A tensor, the value with the id `value`.
    value,
    // An integer that may depend on the number of samples.
    size,
    // A list of tensors (or None), or a list of sizes.
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

  bool is_none() const {
    return kind == Kind::constant && constant.isNone();
  }
};

/// A call of an operator.
struct Node {
  // Name, unique in the graph, such as "conv2d_1".
  std::string name;
  // Names of the operator and of its overload, such as "aten::add" and "Tensor".
  std::string target;
  std::string overload;
  // One element for each argument of the operator's schema, in the order of the schema,
  // including defaults.
  std::vector<Argument> arguments;
  // Ids of the tensors that the operator returns; -1 for a tensor that the graph does
  // not use. If the operator returns a list, the ids of its elements.
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
/// The form is that of torch.fx and torch/_export/serde/schema.py, except for sizes. In
/// a Graph, sizes are not values, but linear functions of the number of samples. So a
/// graph can be divided wherever a single tensor crosses.
struct Graph {
  // The input is first. Parameters and buffers are in order of registration.
  std::vector<Value> values;
  std::vector<Node> nodes;
  ValueId input = 0;
  ValueId output = 0;
  // Smallest and largest number of samples in a batch.
  int64_t min_samples = 0;
  int64_t max_samples = std::numeric_limits<int64_t>::max();
  // True if a file states the shapes of the values. The interpreter then compares each
  // result with its shape.
  bool states_shapes = false;
  // Another name of a parameter or buffer that has several names (tied weights), and
  // the id of the value.
  struct Alias {
    std::string state_name;
    ValueId value;
  };
  std::vector<Alias> aliases;

  const Value& value(ValueId id) const {
    return values[static_cast<size_t>(id)];
  }
};

/// Nodes [begin, end) of a graph.
struct NodeRange {
  size_t begin = 0;
  size_t end = 0;
};

/// Returns the shape of a tensor whose sizes do not depend on the number of samples.
[[nodiscard]] std::vector<Size> fixed_shape(at::IntArrayRef sizes);

/// Returns the shape [N, ...] of a batch whose samples have the shape `sample`.
[[nodiscard]] std::vector<Size> batch_shape(at::IntArrayRef sample);

/// Returns the sizes of a shape for a batch of `samples` samples.
[[nodiscard]] std::vector<int64_t> sizes_at(
    const std::vector<Size>& shape, int64_t samples);

/// Returns a value for the parameter, buffer or constant `tensor`. `name` is its name
/// in the graph and in Python's state_dict().
[[nodiscard]] Value value_of(
    ValueKind kind, const std::string& name, const at::Tensor& tensor);

/// Adds a value and returns its id.
ValueId add_value(Graph& graph, Value value);

/// Adds a node that calls an operator and whose outputs are `outputs`. `arguments` has
/// the first arguments of the operator's schema; the remaining arguments get their
/// defaults. Returns the node. The number of the node is its index.
///
/// Throws ConfigError if LibTorch has no such operator, or if an argument without
/// default is missing.
Node& add_node(
    Graph& graph, const std::string& target, const std::string& overload,
    std::vector<Argument> arguments, const std::vector<ValueId>& outputs);

/// Calls `use` with the id of each value to which an argument, or an element of its
/// list, refers.
template <typename Use>
void for_each_value(const Argument& argument, const Use& use) {
  if (argument.kind == Argument::Kind::value) {
    use(argument.value);
  }
  for (const auto& element : argument.list) {
    for_each_value(element, use);
  }
}

/// Calls `use` with the id of each value that a node reads.
template <typename Use>
void for_each_value(const Node& node, const Use& use) {
  for (const auto& argument : node.arguments) {
    for_each_value(argument, use);
  }
}

/// Checks that a graph has these properties:
/// - Every operator exists.
/// - Every argument has the type that the operator's schema requires.
/// - Every value is computed once, before its first use.
/// - Names of values are unique.
/// - No node changes a trained parameter in place, except through detach(), and no node
///   changes a constant that the graph reads before it overwrites the constant.
///
/// Otherwise, throws ConfigError with the node and its source line.
void verify(const Graph& graph);

/// Throws ConfigError if the graph cannot run a batch of `samples` samples, because of
/// its limits. `setting` is the flag to change, such as "--batch-size".
void check_samples(const Graph& graph, int64_t samples, const std::string& setting);

/// Returns the graph as text, with one line per tensor and per node. The text contains
/// shapes, operators and arguments, but not the elements of parameters and buffers.
/// Constants appear as hashes. Graphs with equal texts compute the same function of
/// their parameters.
[[nodiscard]] std::string describe(const Graph& graph);

/// Returns the parameters, or the buffers, with the names of Python's state_dict(), in
/// order of registration. The other names of tied weights follow at the end. Leaves out
/// tensors of other pipeline stages.
[[nodiscard]] std::vector<NamedTensor> parameters_of(const Graph& graph);
[[nodiscard]] std::vector<NamedTensor> buffers_of(const Graph& graph);

/// Returns whether a log-softmax computes the output of the graph.
[[nodiscard]] bool ends_in_log_softmax(const Graph& graph);

/// Returns the node that computes the values of the graph's output. Skips nodes that
/// only rearrange, copy or convert values. Returns null if no node computes them.
[[nodiscard]] const Node* output_node(const Graph& graph);

/// Returns the operator of a node with its overload, such as "aten::add.Tensor".
[[nodiscard]] std::string operator_name(const Node& node);

/// Returns the name of a node in messages and for --cut: its module, or its own name if
/// it has no module.
[[nodiscard]] const std::string& layer_name(const Node& node);

/// Returns, for each value, the number of times that nodes read it.
[[nodiscard]] std::vector<int> count_uses(const Graph& graph);

/// Returns the id of the value that a node changes in place; -1 if the node changes no
/// value.
[[nodiscard]] ValueId written_value(const Node& node);

/// Returns whether a node reads a parameter.
[[nodiscard]] bool has_parameters(const Graph& graph, const Node& node);

/// Returns the number of elements of the parameters that a node reads.
[[nodiscard]] int64_t count_parameters(const Graph& graph, const Node& node);

/// Returns the name and source line of a node, for messages: "conv2d_1 (net.py:12: x =
/// self.conv1(x))".
[[nodiscard]] std::string name_for_messages(const Node& node);

/// Returns a size as text, with N for the number of samples: "8*N+1".
[[nodiscard]] std::string text_of(const Size& size);

/// Returns a shape as text: "[N, 64, 8*N]".
[[nodiscard]] std::string text_of(const std::vector<Size>& shape);

}  // namespace tandem
