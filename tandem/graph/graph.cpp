#include "tandem/graph/graph.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

const c10::FunctionSchema& checked_schema(const Node& node) {
  const auto* schema = schema_of(node.target, node.overload);
  if (schema == nullptr) {
    throw ConfigError(fmt::format(
        "[model] {} calls the operator {}, which this LibTorch lacks; use another "
        "operator in the model, or a newer LibTorch",
        name_for_messages(node), operator_name(node)));
  }
  return *schema;
}

bool takes_integers(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::IntType || type->str() == "SymInt" ||
         type->kind() == c10::TypeKind::NumberType;
}

// Returns the element type of a list, or of an optional list; null for other types.
c10::TypePtr element_type(const c10::TypePtr& type) {
  const auto list = without_optional(type)->cast<c10::ListType>();
  return list == nullptr ? nullptr : list->getElementType();
}

bool fits(const Argument& argument, const c10::TypePtr& type) {
  switch (argument.kind) {
    case Argument::Kind::value:
      return without_optional(type)->kind() == c10::TypeKind::TensorType;
    case Argument::Kind::size:
      return takes_integers(without_optional(type));
    case Argument::Kind::list: {
      const auto element = element_type(type);
      return element != nullptr &&
             std::all_of(
                 argument.list.begin(), argument.list.end(),
                 [&](const Argument& part) { return fits(part, element); });
    }
    case Argument::Kind::constant:
      break;
  }
  if (argument.constant.isNone()) {
    return type->kind() == c10::TypeKind::OptionalType;
  }
  const auto wanted = without_optional(type);
  // Dtypes, layouts and memory formats are integers in IValues. A newer LibTorch names
  // sizes SymInt.
  if (argument.constant.isInt()) {
    return takes_integers(wanted) || wanted->kind() == c10::TypeKind::IntType ||
           wanted->str() == "ScalarType" || wanted->str() == "Layout" ||
           wanted->str() == "MemoryFormat";
  }
  if (argument.constant.isIntList()) {
    const auto element = element_type(type);
    return element != nullptr && takes_integers(element);
  }
  return argument.constant.type()->isSubtypeOf(*wanted) ||
         (wanted->kind() == c10::TypeKind::NumberType && argument.constant.isScalar());
}

std::string argument_text(const Graph& graph, const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::value:
      return "%" + graph.value(argument.value).name;
    case Argument::Kind::size:
      return text_of(argument.size);
    case Argument::Kind::list: {
      std::string text = "[";
      for (const auto& element : argument.list) {
        text += (text.size() == 1 ? "" : ", ") + argument_text(graph, element);
      }
      return text + "]";
    }
    case Argument::Kind::constant:
      break;
  }
  return c10::str(argument.constant);
}

std::string value_text(const Value& value) {
  return fmt::format(
      "%{}: {}{}", value.name, c10::toString(value.dtype), text_of(value.shape));
}

std::string sha256_of(const at::Tensor& tensor) {
  const auto values = tensor.contiguous();
  return sha256_hex(values.data_ptr(), values.nbytes());
}

// Checks a graph node by node.
class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), computed_(graph.values.size()) {}

  void verify() {
    std::set<std::string> names;
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (!names.insert(value.name).second) {
        throw ConfigError("[model] two values are named '" + value.name + "'");
      }
      computed_[i] = value.kind != ValueKind::output;
    }
    for (const auto& node : graph_.nodes) {
      check(node);
    }
    if (!is_computed(graph_.output)) {
      throw ConfigError("[model] no node computes the output of the model");
    }
    const Effects effects(graph_);
    for (const auto& node : graph_.nodes) {
      check_changes(effects, node);
    }
  }

 private:
  bool is_computed(ValueId id) const {
    return id >= 0 && id < static_cast<ValueId>(computed_.size()) &&
           computed_[static_cast<size_t>(id)];
  }

  void check(const Node& node) {
    const auto& schema = checked_schema(node);
    if (node.arguments.size() != schema.arguments().size()) {
      throw ConfigError(fmt::format(
          "[model] {} has {} arguments, expected {}", name_for_messages(node),
          node.arguments.size(), schema.arguments().size()));
    }
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const auto& expected = schema.arguments()[i];
      if (!fits(node.arguments[i], expected.type())) {
        throw ConfigError(fmt::format(
            "[model] argument '{}' of {} is {}, expected {}", expected.name(),
            name_for_messages(node), argument_text(graph_, node.arguments[i]),
            expected.type()->str()));
      }
    }
    for_each_value(node, [&](ValueId id) {
      if (!is_computed(id)) {
        throw ConfigError(
            "[model] " + name_for_messages(node) +
            " uses a value before a node computes it");
      }
    });
    check_outputs(node, schema);
  }

  // Autograd does not allow changes of trained parameters. A constant is not part of
  // checkpoints, so a resumed run would begin with its old elements.
  void check_changes(const Effects& effects, const Node& node) const {
    const ValueId id = written_value(node);
    if (id < 0) {
      return;
    }
    const Value& value = graph_.value(id);
    if (value.kind == ValueKind::parameter && value.tensor.requires_grad()) {
      throw ConfigError(
          "[model] " + name_for_messages(node) + " changes the parameter " +
          value.state_name +
          " in place, which autograd does not allow; use an operator that returns a "
          "new tensor");
    }
    const Value& root = graph_.value(effects.root(id));
    if (root.kind == ValueKind::constant && !effects.is_scratch(effects.root(id))) {
      throw ConfigError(
          "[model] " + name_for_messages(node) + " changes the tensor " + root.name +
          ", which checkpoints do not contain; register it as a buffer with "
          "persistent=True");
    }
  }

  void check_outputs(const Node& node, const c10::FunctionSchema& schema) {
    const bool list = schema.returns().size() == 1 &&
                      schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
    if (!list && node.outputs.size() > schema.returns().size()) {
      throw ConfigError(fmt::format(
          "[model] {} has {} outputs, expected {}", name_for_messages(node),
          node.outputs.size(), schema.returns().size()));
    }
    for (const ValueId id : node.outputs) {
      if (id == -1) {
        continue;
      }
      if (id < 0 || id >= static_cast<ValueId>(computed_.size()) || is_computed(id)) {
        throw ConfigError(
            "[model] " + name_for_messages(node) +
            " has an output that does not exist, or that another node computes");
      }
      computed_[static_cast<size_t>(id)] = true;
    }
  }

  const Graph& graph_;
  std::vector<bool> computed_;
};

std::vector<NamedTensor> state_of(const Graph& graph, ValueKind kind) {
  std::vector<NamedTensor> state;
  for (const auto& value : graph.values) {
    if (value.kind == kind && value.tensor.defined()) {
      state.push_back({value.state_name, value.tensor});
    }
  }
  for (const auto& alias : graph.aliases) {
    const Value& value = graph.value(alias.value);
    if (value.kind == kind && value.tensor.defined()) {
      state.push_back({alias.state_name, value.tensor});
    }
  }
  return state;
}

}  // namespace

Argument Argument::of(c10::IValue constant) {
  Argument argument;
  argument.constant = std::move(constant);
  return argument;
}

Argument Argument::of_value(ValueId value) {
  Argument argument;
  argument.kind = Kind::value;
  argument.value = value;
  return argument;
}

Argument Argument::of_size(Size size) {
  Argument argument;
  argument.kind = Kind::size;
  argument.size = size;
  return argument;
}

Argument Argument::of_list(std::vector<Argument> list) {
  Argument argument;
  argument.kind = Kind::list;
  argument.list = std::move(list);
  return argument;
}

std::vector<Size> fixed_shape(at::IntArrayRef sizes) {
  std::vector<Size> shape;
  for (const int64_t size : sizes) {
    shape.push_back({size, 0});
  }
  return shape;
}

std::vector<Size> batch_shape(at::IntArrayRef sample) {
  auto shape = fixed_shape(sample);
  shape.insert(shape.begin(), Size{0, 1});
  return shape;
}

std::vector<int64_t> sizes_at(const std::vector<Size>& shape, int64_t samples) {
  std::vector<int64_t> sizes;
  for (const auto& size : shape) {
    sizes.push_back(size.at(samples));
  }
  return sizes;
}

Value value_of(ValueKind kind, const std::string& name, const at::Tensor& tensor) {
  return {kind, name, tensor.scalar_type(), fixed_shape(tensor.sizes()), name, tensor};
}

ValueId add_value(Graph& graph, Value value) {
  graph.values.push_back(std::move(value));
  return static_cast<ValueId>(graph.values.size()) - 1;
}

Node& add_node(
    Graph& graph, const std::string& target, const std::string& overload,
    std::vector<Argument> arguments, const std::vector<ValueId>& outputs) {
  Node node;
  node.target = target;
  node.overload = overload;
  node.number = static_cast<int64_t>(graph.nodes.size());
  node.name = target.substr(target.rfind(':') + 1) + "_" + std::to_string(node.number);
  const auto& schema = checked_schema(node);
  for (size_t i = arguments.size(); i < schema.arguments().size(); ++i) {
    const auto& missing = schema.arguments()[i];
    if (!missing.default_value()) {
      throw ConfigError(
          "[model] " + name_for_messages(node) + " has no argument '" + missing.name() +
          "'");
    }
    arguments.push_back(Argument::of(*missing.default_value()));
  }
  node.arguments = std::move(arguments);
  node.outputs = outputs;
  graph.nodes.push_back(std::move(node));
  return graph.nodes.back();
}

void verify(const Graph& graph) {
  Verifier(graph).verify();
}

void check_samples(const Graph& graph, int64_t samples, const std::string& setting) {
  if (samples < graph.min_samples || samples > graph.max_samples) {
    const bool few = samples < graph.min_samples;
    throw ConfigError(fmt::format(
        "[model] a batch has {} samples, expected at {} {}, the limit that the "
        "network's "
        "file states; change {}, or torch.export.Dim in the export",
        samples, few ? "least" : "most", few ? graph.min_samples : graph.max_samples,
        setting));
  }
}

std::string describe(const Graph& graph) {
  std::string text;
  for (const auto& value : graph.values) {
    if (value.kind == ValueKind::output) {
      continue;
    }
    text += value_text(value);
    if (value.kind == ValueKind::constant) {
      text += " = constant " + sha256_of(value.tensor);
    } else if (value.kind != ValueKind::input) {
      text += " = " + value.state_name;
    }
    text += "\n";
  }
  for (const auto& node : graph.nodes) {
    std::string line;
    for (const ValueId id : node.outputs) {
      line += (line.empty() ? "" : ", ") +
              (id == -1 ? std::string("_") : value_text(graph.value(id)));
    }
    line += " = " + operator_name(node) + "(";
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      line += (i == 0 ? "" : ", ") + argument_text(graph, node.arguments[i]);
    }
    text += line + ")" + fmt::format(" # {} {}\n", node.number, node.module);
  }
  return text + "return %" + graph.value(graph.output).name + "\n";
}

std::vector<NamedTensor> parameters_of(const Graph& graph) {
  return state_of(graph, ValueKind::parameter);
}

std::vector<NamedTensor> buffers_of(const Graph& graph) {
  return state_of(graph, ValueKind::buffer);
}

bool ends_in_log_softmax(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.target == "aten::log_softmax" && node.outputs[0] == graph.output;
  });
}

const Node* output_node(const Graph& graph) {
  ValueId wanted = graph.output;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto& outputs = node->outputs;
    if (std::find(outputs.begin(), outputs.end(), wanted) == outputs.end()) {
      continue;
    }
    const bool copies = node->target == "aten::to" || node->target == "aten::clone" ||
                        node->target == "aten::_to_copy";
    if (!copies && !operator_row(node->target).has(kIsView)) {
      return &*node;
    }
    wanted = node->arguments[0].value;
  }
  return nullptr;
}

std::string operator_name(const Node& node) {
  return node.overload.empty() ? node.target : node.target + "." + node.overload;
}

const std::string& layer_name(const Node& node) {
  return node.module.empty() ? node.name : node.module;
}

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.values.size());
  for (const auto& node : graph.nodes) {
    for_each_value(node, [&](ValueId id) { ++uses[static_cast<size_t>(id)]; });
  }
  return uses;
}

ValueId written_value(const Node& node) {
  const auto& arguments = schema_of(node).arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite() &&
        node.arguments[i].kind == Argument::Kind::value) {
      return node.arguments[i].value;
    }
  }
  return -1;
}

bool has_parameters(const Graph& graph, const Node& node) {
  bool found = false;
  for_each_value(node, [&](ValueId id) {
    found = found || graph.value(id).kind == ValueKind::parameter;
  });
  return found;
}

int64_t count_parameters(const Graph& graph, const Node& node) {
  int64_t count = 0;
  for_each_value(node, [&](ValueId id) {
    const Value& value = graph.value(id);
    count += value.kind == ValueKind::parameter ? value.tensor.numel() : 0;
  });
  return count;
}

std::string name_for_messages(const Node& node) {
  return node.source.empty() ? node.name : node.name + " (" + node.source + ")";
}

std::string text_of(const Size& size) {
  if (size.per_sample == 0) {
    return std::to_string(size.fixed);
  }
  const std::string samples =
      size.per_sample == 1 ? "N" : std::to_string(size.per_sample) + "*N";
  return size.fixed == 0 ? samples : samples + fmt::format("{:+}", size.fixed);
}

std::string text_of(const std::vector<Size>& shape) {
  std::string text = "[";
  for (const auto& size : shape) {
    text += (text.size() == 1 ? "" : ", ") + text_of(size);
  }
  return text + "]";
}

}  // namespace tandem
