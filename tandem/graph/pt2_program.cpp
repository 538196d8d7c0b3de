#include "tandem/graph/pt2_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "tandem/graph/operators.h"

namespace tandem {

namespace {

// Kinds of arguments: positional or by keyword.
constexpr int kPositional = 1;
constexpr int kKeyword = 2;
// Class of modules: a graph has only the paths of modules.
constexpr const char* kModuleClass = "torch.nn.modules.module.Module";
// Entry of the whole network in stacks of modules.
constexpr const char* kWholeNetwork = "L__self__,,torch.nn.modules.module.Module";

// --- names

// Returns a text as the name of a Python variable: replaces other characters by '_'.
std::string identifier(const std::string& text) {
  std::string name;
  for (const char c : text) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0
             ? "_" + name
             : name;
}

// torch.export's prefix of the name of an input.
std::string prefix_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::parameter:
      return "p_";
    case ValueKind::buffer:
    case ValueKind::constant:
      return "b_";
    default:
      return "";
  }
}

// Returns whether a list of arguments has tensors or None, not sizes.
bool has_tensors(const std::vector<Argument>& list) {
  return !list.empty() && (list[0].kind == Argument::Kind::value || list[0].is_none());
}

bool is_default(const Argument& argument, const c10::Argument& wanted) {
  return argument.kind == Argument::Kind::constant && wanted.default_value() &&
         argument.constant == *wanted.default_value();
}

// Turns a graph into an ExportedProgram.
class ProgramWriter {
 public:
  explicit ProgramWriter(const Graph& graph) : graph_(graph) {
    for (const auto& value : graph.values) {
      const bool is_state = value.name == value.state_name;
      names_.push_back(unique((is_state ? prefix_of(value.kind) : "") + value.name));
    }
  }

  Pt2Json write() {
    add_state_inputs();
    const std::string& input = names_[static_cast<size_t>(graph_.input)];
    add_tensor(graph_.input);
    add_input(input, "user_input", {{"arg", tensor_json(graph_.input)}});
    for (const auto& node : graph_.nodes) {
      add_node(node);
    }
    const Pt2Json output = tensor_json(graph_.output);
    Pt2Json graph = {
        {"inputs", inputs_},
        {"outputs", Pt2Json::array({output})},
        {"nodes", nodes_},
        {"tensor_values", tensors_},
        {"sym_int_values", sizes_},
        {"sym_bool_values", Pt2Json::object()},
        {"is_single_tensor_return", false},
        {"custom_obj_values", Pt2Json::object()},
        {"sym_float_values", Pt2Json::object()},
    };
    Pt2Json signature = {
        {"input_specs", input_specs_},
        {"output_specs", Pt2Json::array({{{"user_output", {{"arg", output}}}}})},
    };
    Pt2Json module = {
        {"graph", std::move(graph)},
        {"signature", std::move(signature)},
        {"module_call_graph", calls(input)},
        {"metadata", Pt2Json::object()},
        {"treespec_namedtuple_fields", Pt2Json::object()},
    };
    const bool limited = graph_.max_samples < std::numeric_limits<int64_t>::max();
    const Pt2Json most = limited ? Pt2Json(graph_.max_samples) : Pt2Json(nullptr);
    const Pt2Json limits = {{"min_val", graph_.min_samples}, {"max_val", most}};
    return {
        {"graph_module", std::move(module)},
        {"opset_version", {{"aten", 10}}},
        {"range_constraints", {{kPt2Symbol, limits}}},
        {"schema_version", {{"major", 8}, {"minor", 20}}},
        {"verifiers", Pt2Json::array({"TRAINING"})},
        {"torch_version", "2.15.0"},
        {"guards_code", Pt2Json::array()},
    };
  }

 private:
  // Returns a name that the program does not have yet.
  std::string unique(const std::string& wanted) {
    const std::string name = identifier(wanted);
    std::string candidate = name;
    for (int i = 1; !used_.insert(candidate).second; ++i) {
      candidate = name + "_" + std::to_string(i);
    }
    return candidate;
  }

  Pt2Json tensor_json(ValueId id) const {
    return {{"as_tensor", {{"name", names_[static_cast<size_t>(id)]}}}};
  }

  // --- values

  void add_tensor(ValueId id) {
    add_tensor(names_[static_cast<size_t>(id)], graph_.value(id));
  }

  void add_tensor(const std::string& name, const Value& value) {
    const bool trained = value.tensor.defined() && value.tensor.requires_grad();
    tensors_[name] = pt2_tensor(value.dtype, value.shape, trained, "'" + name + "'");
  }

  void add_input(const std::string& name, const char* kind, Pt2Json spec) {
    inputs_.push_back({{"as_tensor", {{"name", name}}}});
    input_specs_.push_back({{kind, std::move(spec)}});
  }

  // As in PyTorch, each name of a tied weight is an input. One of them is used.
  void add_state_inputs() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.kind != ValueKind::input && value.kind != ValueKind::output) {
        add_state_input(names_[i], attribute_name(value), value);
      }
    }
    for (const auto& alias : graph_.aliases) {
      const Value& value = graph_.value(alias.value);
      const auto name = unique(prefix_of(value.kind) + alias.state_name);
      add_state_input(name, alias.state_name, value);
    }
  }

  void add_state_input(
      const std::string& name, const std::string& state_name, const Value& value) {
    Pt2Json spec = {{"arg", {{"name", name}}}};
    const bool is_parameter = value.kind == ValueKind::parameter;
    spec[is_parameter ? "parameter_name" : "buffer_name"] = state_name;
    if (!is_parameter) {
      spec["persistent"] = value.kind == ValueKind::buffer;
    }
    add_tensor(name, value);
    add_input(name, is_parameter ? "parameter" : "buffer", std::move(spec));
  }

  // --- sizes

  // Returns the name of a size, which a node computes.
  std::string name_of(const Size& size) {
    const auto key = std::make_pair(size.per_sample, size.fixed);
    const auto found = size_names_.find(key);
    if (found != size_names_.end()) {
      return found->second;
    }
    std::string name;
    if (size.fixed != 0) {
      name = add_arithmetic("add", {0, size.per_sample}, size.fixed);
    } else if (size.per_sample != 1) {
      name = add_arithmetic("mul", {0, 1}, size.per_sample);
    } else {
      name = unique("sym_size_int");
      add_call(
          "torch.ops.aten.sym_size.int",
          {named("self", tensor_json(graph_.input), kPositional),
           named("dim", {{"as_int", 0}}, kPositional)},
          {{"as_sym_int", {{"as_name", name}}}}, name);
    }
    sizes_[name] = pt2_size(size);
    size_names_[key] = name;
    return name;
  }

  std::string add_arithmetic(const std::string& function, const Size& a, int64_t b) {
    const std::string left = name_of(a);
    std::string name = unique(function);
    add_call(
        "_operator." + function,
        {named("a", {{"as_sym_int", {{"as_name", left}}}}, kPositional),
         named("b", {{"as_int", b}}, kPositional)},
        {{"as_sym_int", {{"as_name", name}}}}, name);
    return name;
  }

  // --- nodes

  static Pt2Json named(const std::string& name, Pt2Json argument, int kind) {
    return {{"name", name}, {"arg", std::move(argument)}, {"kind", kind}};
  }

  // Adds a node of the whole network with one output.
  void add_call(
      const std::string& target, Pt2Json::array_t inputs, Pt2Json output,
      const std::string& name) {
    nodes_.push_back(
        {{"target", target},
         {"inputs", std::move(inputs)},
         {"outputs", Pt2Json::array({std::move(output)})},
         {"metadata", {{"nn_module_stack", kWholeNetwork}}},
         {"is_hop_single_tensor_return", nullptr},
         {"name", name}});
  }

  void add_node(const Node& node) {
    const bool is_used =
        written_value(node) >= 0 || std::any_of(
                                        node.outputs.begin(), node.outputs.end(),
                                        [](ValueId id) { return id >= 0; });
    if (!is_used) {
      return;
    }
    Pt2Json inputs = inputs_of(node);
    auto [name, outputs] = outputs_of(node);
    nodes_.push_back(
        {{"target", target_of(node)},
         {"inputs", std::move(inputs)},
         {"outputs", std::move(outputs)},
         {"metadata", metadata_of(node)},
         {"is_hop_single_tensor_return", nullptr},
         {"name", name}});
  }

  static std::string target_of(const Node& node) {
    const size_t colons = node.target.find("::");
    return "torch.ops." + node.target.substr(0, colons) + "." +
           node.target.substr(colons + 2) + "." +
           (node.overload.empty() ? "default" : node.overload);
  }

  // Positional arguments have no gaps, so only the last ones can be omitted.
  Pt2Json inputs_of(const Node& node) {
    const auto& wanted = schema_of(node).arguments();
    size_t positional = 0;
    for (size_t i = 0; i < wanted.size() && !wanted[i].kwarg_only(); ++i) {
      positional = is_default(node.arguments[i], wanted[i]) ? positional : i + 1;
    }
    Pt2Json inputs = Pt2Json::array();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const bool by_keyword = wanted[i].kwarg_only();
      if (by_keyword ? !is_default(node.arguments[i], wanted[i]) : i < positional) {
        inputs.push_back(named(
            wanted[i].name(), argument_json(node, node.arguments[i], wanted[i]),
            by_keyword ? kKeyword : kPositional));
      }
    }
    return inputs;
  }

  Pt2Json argument_json(
      const Node& node, const Argument& argument, const c10::Argument& wanted) {
    switch (argument.kind) {
      case Argument::Kind::value:
        return tensor_json(argument.value);
      case Argument::Kind::size:
        return {{"as_sym_int", {{"as_name", name_of(argument.size)}}}};
      case Argument::Kind::list:
        return has_tensors(argument.list) ? tensors_json(argument.list)
                                          : sizes_json(argument.list);
      case Argument::Kind::constant:
        break;
    }
    return pt2_constant(argument.constant, wanted, name_for_messages(node));
  }

  Pt2Json tensors_json(const std::vector<Argument>& list) const {
    bool optional = false;
    for (const auto& element : list) {
      optional = optional || element.is_none();
    }
    Pt2Json tensors = Pt2Json::array();
    for (const auto& element : list) {
      if (element.is_none()) {
        tensors.push_back({{"as_none", true}});
      } else {
        const Pt2Json tensor = tensor_json(element.value);
        tensors.push_back(optional ? tensor : tensor.at("as_tensor"));
      }
    }
    return {{optional ? "as_optional_tensors" : "as_tensors", tensors}};
  }

  Pt2Json sizes_json(const std::vector<Argument>& list) {
    Pt2Json sizes = Pt2Json::array();
    for (const auto& element : list) {
      if (element.kind == Argument::Kind::size && element.size.per_sample != 0) {
        sizes.push_back({{"as_name", name_of(element.size)}});
      } else {
        const bool is_size = element.kind == Argument::Kind::size;
        sizes.push_back(
            {{"as_int", is_size ? element.size.fixed : element.constant.toInt()}});
      }
    }
    return {{"as_sym_ints", sizes}};
  }

  // Returns the name of the node and its outputs.
  std::pair<std::string, Pt2Json> outputs_of(const Node& node) {
    const auto& returns = schema_of(node).returns();
    const bool is_list =
        returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType;
    if (returns.size() == 1 && !is_list) {
      const std::string name = single_output(node);
      return {name, Pt2Json::array({{{"as_tensor", {{"name", name}}}}})};
    }
    Pt2Json outputs = Pt2Json::array();
    for (const ValueId id : node.outputs) {
      if (id >= 0) {
        add_tensor(id);
      }
      outputs.push_back(id >= 0 ? tensor_json(id) : Pt2Json{{"as_none", true}});
    }
    while (!is_list && outputs.size() < returns.size()) {
      outputs.push_back({{"as_none", true}});
    }
    if (is_list && outputs.size() == 1) {
      outputs = Pt2Json::array(
          {{{"as_tensors", Pt2Json::array({outputs[0].at("as_tensor")})}}});
    }
    return {unique(node.target.substr(node.target.rfind(':') + 1)), std::move(outputs)};
  }

  // Returns the name of the only output. The output of a node that changes a tensor in
  // place is this tensor.
  std::string single_output(const Node& node) {
    const ValueId id = node.outputs.empty() ? -1 : node.outputs[0];
    if (id >= 0) {
      add_tensor(id);
      return names_[static_cast<size_t>(id)];
    }
    const Value& written = graph_.value(written_value(node));
    std::string name = unique(node.name);
    tensors_[name] = pt2_tensor(written.dtype, written.shape, false, "'" + name + "'");
    return name;
  }

  // --- modules and lines of code

  // Adds the module at `path` and the modules that contain it to the program.
  Pt2Json metadata_of(const Node& node) {
    Pt2Json metadata = Pt2Json::object();
    if (!node.source.empty()) {
      metadata["stack_trace"] = trace_of(node.source);
    }
    std::string stack = kWholeNetwork;
    for (size_t end = 0; end < node.module.size(); ++end) {
      end = std::min(node.module.find('.', end), node.module.size());
      const std::string path = node.module.substr(0, end);
      stack += fmt::format(";L__self__{0},{0},{1}", path, kModuleClass);
      if (used_modules_.insert(path).second) {
        modules_.push_back(path);
      }
    }
    metadata["nn_module_stack"] = stack;
    return metadata;
  }

  // Returns "net.py:12: code" as a frame of a stack.
  static std::string trace_of(const std::string& source) {
    const size_t colon = source.find(':');
    const size_t end = source.find(": ", colon + 1);
    const std::string frame = fmt::format(
        "File \"{}\", line {}, in forward", source.substr(0, colon),
        source.substr(colon + 1, end - colon - 1));
    return end == std::string::npos ? frame : frame + "\n    " + source.substr(end + 2);
  }

  // Returns the calls of the program and of its modules. The specs are those of a
  // function from one tensor to one tensor.
  Pt2Json calls(const std::string& input) const {
    static const std::string kTensorSpec =
        R"({"type": null, "context": null, "children_spec": []})";
    const auto tuple = [](const std::string& child) {
      return R"({"type": "builtins.tuple", "context": "null", "children_spec": [)" +
             child + "]}";
    };
    const std::string no_keywords =
        R"({"type": "builtins.dict", "context": "[]", "children_spec": []})";
    const Pt2Json signature = {
        {"inputs", Pt2Json::array()},
        {"outputs", Pt2Json::array()},
        {"in_spec", "[1, " + tuple(tuple(kTensorSpec) + ", " + no_keywords) + "]"},
        {"out_spec", "[1, " + kTensorSpec + "]"},
        {"forward_arg_names", Pt2Json::array({input})},
    };
    Pt2Json entries = Pt2Json::array({{{"fqn", ""}, {"signature", signature}}});
    for (const auto& path : modules_) {
      entries.push_back({{"fqn", path}, {"signature", nullptr}});
    }
    return entries;
  }

  const Graph& graph_;
  // Names of the graph's values in the program, and all names of the program.
  std::vector<std::string> names_;
  std::set<std::string> used_;
  std::map<std::pair<int64_t, int64_t>, std::string> size_names_;
  // Paths of modules, in the order of their calls.
  std::vector<std::string> modules_;
  std::set<std::string> used_modules_;
  // Parts of the program.
  Pt2Json inputs_ = Pt2Json::array();
  Pt2Json input_specs_ = Pt2Json::array();
  Pt2Json nodes_ = Pt2Json::array();
  Pt2Json tensors_ = Pt2Json::object();
  Pt2Json sizes_ = Pt2Json::object();
};

}  // namespace

const std::string& attribute_name(const Value& value) {
  return value.state_name.empty() ? value.name : value.state_name;
}

Pt2Json program_of(const Graph& graph) {
  return ProgramWriter(graph).write();
}

}  // namespace tandem
