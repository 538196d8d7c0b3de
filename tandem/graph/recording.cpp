#include "tandem/graph/recording.h"

#include <fmt/core.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <utility>

#include "tandem/graph/effects.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/random_operators.h"

namespace tandem {

namespace {

// Converts a recording to a graph whose sizes are constants.
class RecordingConverter {
 public:
  // `state` has the values that are the recording's inputs.
  explicit RecordingConverter(Graph state) : graph_(std::move(state)) {}

  Graph convert(const torch::jit::Graph& recording) {
    for (size_t i = 0; i < recording.inputs().size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      arguments_[recording.inputs()[i]] = Argument::of_value(id);
      roots_[id] = id;
    }
    for (const auto* node : recording.nodes()) {
      convert(*node);
    }
    graph_.output = argument(recording.outputs().at(0)).value;
    return std::move(graph_);
  }

 private:
  const Argument& argument(const torch::jit::Value* value) const {
    const auto found = arguments_.find(value);
    if (found == arguments_.end()) {
      throw NoGraph(
          std::string("a graph cannot contain the result of ") +
          value->node()->kind().toQualString());
    }
    return found->second;
  }

  void convert(const torch::jit::Node& node) {
    if (node.kind() == c10::prim::Constant) {
      arguments_[node.output()] = constant(*torch::jit::toIValue(node.output()));
    } else if (node.kind() == c10::prim::ListConstruct) {
      arguments_[node.output()] = list(node);
    } else if (node.kind() == c10::prim::ListUnpack) {
      unpack(node);
    } else if (node.kind().is_aten()) {
      call(node);
    } else {
      throw NoGraph(
          std::string("a graph cannot contain ") + node.kind().toQualString());
    }
  }

  Argument constant(const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) {
      return Argument::of(value.isTensor() ? c10::IValue() : value);
    }
    const auto tensor = value.toTensor();
    for (const auto& known : graph_.values) {
      if (known.tensor.defined() && known.tensor.is_alias_of(tensor)) {
        throw NoGraph(
            "'" + known.name +
            "' is read through another tensor, for instance by data()");
      }
    }
    const ValueId id = add_value(graph_, value_of(ValueKind::constant, "", tensor));
    roots_[id] = id;
    return Argument::of_value(id);
  }

  Argument list(const torch::jit::Node& node) const {
    std::vector<Argument> elements;
    std::vector<int64_t> integers;
    for (const auto* input : node.inputs()) {
      elements.push_back(argument(input));
      if (elements.back().constant.isInt()) {
        integers.push_back(elements.back().constant.toInt());
      }
    }
    // A list of integers is one constant.
    return integers.size() == elements.size() ? Argument::of(integers)
                                              : Argument::of_list(elements);
  }

  // The elements become outputs of the node that returned the list.
  void unpack(const torch::jit::Node& node) {
    const auto found = lists_.find(node.input());
    if (found == lists_.end()) {
      throw NoGraph("a graph cannot contain a list that no operator returns");
    }
    for (const auto* output : node.outputs()) {
      add_output(found->second, output);
    }
  }

  void call(const torch::jit::Node& recorded) {
    const auto* found = recorded.maybeSchema();
    if (found == nullptr ||
        schema_of(found->name(), found->overload_name()) == nullptr) {
      throw NoGraph(
          std::string("LibTorch has no schema of the operator ") +
          recorded.kind().toQualString());
    }
    Node node;
    node.target = found->name();
    node.overload = found->overload_name();
    if (draws_random_numbers(node)) {
      throw NoGraph(node.target + " draws random numbers from LibTorch's generator");
    }
    for (const auto* input : recorded.inputs()) {
      node.arguments.push_back(argument(input));
    }
    const ValueId written = written_value(node);
    check_written(node, written);
    // The output of a node that changes a buffer is the buffer.
    if (written >= 0 && graph_.value(written).kind == ValueKind::buffer) {
      arguments_[recorded.output()] = Argument::of_value(written);
      node.outputs = {-1};
      graph_.nodes.push_back(std::move(node));
      return;
    }
    const size_t index = graph_.nodes.size();
    graph_.nodes.push_back(undo_decomposition(std::move(node)));
    for (const auto* output : recorded.outputs()) {
      if (output->type()->kind() == c10::TypeKind::ListType) {
        lists_[output] = index;
      } else if (output->type()->kind() == c10::TypeKind::TensorType) {
        add_output(index, output);
      }
    }
  }

  void add_output(size_t index, const torch::jit::Value* output) {
    const auto type = output->type()->expect<c10::TensorType>();
    const auto sizes = type->sizes().concrete_sizes();
    if (!sizes || !type->scalarType()) {
      throw NoGraph("a tensor's shape is unknown");
    }
    const ValueId id = add_value(
        graph_, {ValueKind::output, "", *type->scalarType(), fixed_shape(*sizes)});
    Node& node = graph_.nodes[index];
    node.outputs.push_back(id);
    producers_[id] = index;
    // Views have an alias in their schema; all of them are views of the first argument.
    const auto& returns = schema_of(node).returns();
    const bool view = !returns.empty() && returns[0].alias_info() != nullptr &&
                      node.arguments[0].kind == Argument::Kind::value;
    roots_[id] = view ? roots_.at(node.arguments[0].value) : id;
    arguments_[output] = Argument::of_value(id);
  }

  // A node may change a buffer, or memory that another node has written.
  void check_written(const Node& node, ValueId written) const {
    if (written < 0) {
      return;
    }
    const Value& root = graph_.value(roots_.at(written));
    const bool buffer = root.kind == ValueKind::buffer && roots_.at(written) == written;
    if (!buffer && root.kind != ValueKind::output) {
      throw NoGraph(
          node.target + " changes " +
          (root.kind == ValueKind::input      ? "the input"
           : root.kind == ValueKind::constant ? "a tensor that is not a buffer"
                                              : "'" + root.name + "'") +
          " in place");
    }
  }

  // Returns the call whose parts the tracer recorded: conv2d() calls _convolution(),
  // and linear() calls addmm() or matmul().
  Node undo_decomposition(Node node) const {
    const auto a = node.arguments;
    if (node.target == "aten::_convolution") {
      const size_t dims = graph_.value(a[1].value).shape.size() - 2;
      if (a[6].constant.toBool()) {
        node.target = fmt::format("aten::conv_transpose{}d", dims);
        node.overload = dims == 1 ? "" : "input";
        node.arguments = {a[0], a[1], a[2], a[3], a[4], a[7], a[8], a[5]};
      } else {
        node.target = fmt::format("aten::conv{}d", dims);
        node.arguments = {a[0], a[1], a[2], a[3], a[4], a[5], a[8]};
      }
    } else if (node.target == "aten::matmul" && transposed_parameter(a[1]) >= 0) {
      node.target = "aten::linear";
      node.arguments = {a[0], Argument::of_value(transposed_parameter(a[1])), {}};
    } else if (
        node.target == "aten::addmm" && transposed_parameter(a[2]) >= 0 &&
        graph_.value(a[0].value).shape.size() == 1 &&
        a[3].constant.toScalar().equal(1) && a[4].constant.toScalar().equal(1)) {
      node.target = "aten::linear";
      node.arguments = {a[1], Argument::of_value(transposed_parameter(a[2])), a[0]};
    }
    return node;
  }

  // Returns the parameter that the argument is a transposed view of, or -1.
  ValueId transposed_parameter(const Argument& argument) const {
    const auto producer = producers_.find(argument.value);
    if (argument.kind != Argument::Kind::value || producer == producers_.end()) {
      return -1;
    }
    const Node& node = graph_.nodes[producer->second];
    const ValueId id = node.target == "aten::t" ? node.arguments[0].value : -1;
    return id >= 0 && graph_.value(id).kind == ValueKind::parameter ? id : -1;
  }

  Graph graph_;
  // Recorded values, as arguments.
  std::map<const torch::jit::Value*, Argument> arguments_;
  // Recorded lists of tensors, and the node that returns each.
  std::map<const torch::jit::Value*, size_t> lists_;
  std::map<ValueId, size_t> producers_;
  // For a view, the value whose memory it shares; otherwise the value itself.
  std::map<ValueId, ValueId> roots_;
};

Argument renumbered(const Argument& from, const std::vector<ValueId>& ids) {
  Argument argument = from;
  if (from.kind == Argument::Kind::value) {
    argument.value = ids[static_cast<size_t>(from.value)];
  }
  for (auto& element : argument.list) {
    element = renumbered(element, ids);
  }
  return argument;
}

// Returns the path of the module that the node's first parameter or buffer belongs to.
std::string module_of(const Graph& graph, const Node& node) {
  std::string module;
  for_each_value(node, [&](ValueId id) {
    const std::string& name = graph.value(id).state_name;
    const size_t dot = name.rfind('.');
    if (module.empty() && dot != std::string::npos) {
      module = name.substr(0, dot);
    }
  });
  return module;
}

}  // namespace

Graph state_of(
    const TraceableFunction& function, const std::vector<int64_t>& input_shape,
    at::ScalarType dtype) {
  Graph graph;
  graph.input =
      add_value(graph, {ValueKind::input, "input", dtype, fixed_shape(input_shape)});
  std::map<const c10::TensorImpl*, ValueId> known;
  const auto add = [&](const NamedTensor& named, ValueKind kind) {
    const auto found = known.find(named.tensor.unsafeGetTensorImpl());
    if (found != known.end()) {
      graph.aliases.push_back({named.name, found->second});
      return;
    }
    const ValueId id = add_value(graph, value_of(kind, named.name, named.tensor));
    known.emplace(named.tensor.unsafeGetTensorImpl(), id);
  };
  for (const auto& parameter : function.parameters) {
    add(parameter, ValueKind::parameter);
  }
  for (const auto& buffer : function.buffers) {
    add(buffer, ValueKind::buffer);
  }
  return graph;
}

Graph graph_of(const torch::jit::Graph& recording, const Graph& state) {
  return needed_part(RecordingConverter(state).convert(recording), true);
}

Graph needed_part(const Graph& from, bool buffer_updates) {
  const Effects effects(from);
  std::vector<bool> used(from.values.size());
  std::vector<bool> kept(from.nodes.size());
  used[static_cast<size_t>(from.output)] = true;
  for (size_t i = from.nodes.size(); i-- > 0;) {
    const Node& node = from.nodes[i];
    kept[i] = effects.changes_state(node) ? buffer_updates : written_value(node) >= 0;
    for (const ValueId id : node.outputs) {
      kept[i] = kept[i] || (id >= 0 && used[static_cast<size_t>(id)]);
    }
    if (kept[i]) {
      for_each_value(node, [&](ValueId id) { used[static_cast<size_t>(id)] = true; });
    }
  }
  Graph graph;
  graph.aliases = from.aliases;
  std::vector<ValueId> ids(from.values.size(), -1);
  for (size_t i = 0; i < from.values.size(); ++i) {
    Value value = from.values[i];
    const bool constant = value.kind == ValueKind::constant;
    if (value.kind != ValueKind::output && (!constant || used[i])) {
      if (constant) {
        value.name = fmt::format("constant_{}", graph.values.size());
      }
      ids[i] = add_value(graph, std::move(value));
    }
  }
  for (size_t i = 0; i < from.nodes.size(); ++i) {
    if (!kept[i]) {
      continue;
    }
    const Node& node = from.nodes[i];
    std::vector<Argument> arguments;
    for (const auto& argument : node.arguments) {
      arguments.push_back(renumbered(argument, ids));
    }
    Node& copy = add_node(graph, node.target, node.overload, std::move(arguments), {});
    copy.module = module_of(graph, copy);
    for (size_t j = 0; j < node.outputs.size(); ++j) {
      const auto old = static_cast<size_t>(node.outputs[j]);
      if (node.outputs[j] < 0 || !used[old]) {
        copy.outputs.push_back(-1);
        continue;
      }
      Value value = from.values[old];
      value.name = j == 0 ? copy.name : fmt::format("{}.{}", copy.name, j);
      ids[old] = add_value(graph, std::move(value));
      copy.outputs.push_back(ids[old]);
    }
  }
  graph.output = ids[static_cast<size_t>(from.output)];
  return graph;
}

}  // namespace tandem
