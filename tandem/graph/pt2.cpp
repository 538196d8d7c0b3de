#include "tandem/graph/pt2.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/graph/checked_operators.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/pt2_archive.h"
#include "tandem/graph/pt2_json.h"
#include "tandem/graph/pt2_nodes.h"
#include "tandem/graph/pt2_sizes.h"

namespace tandem {

namespace {

using nlohmann::json;

constexpr int64_t kSchema = 8;

// The region of `with torch.no_grad():` and `with torch.enable_grad():`.
constexpr const char* kGradRegion = "torch.ops.higher_order.wrap_with_set_grad_enabled";

const json::array_t& array_of(const json& value) {
  return value.get_ref<const json::array_t&>();
}

// Returns whether nodes of this target only compute or check sizes.
bool is_about_sizes(const std::string& target, const json::array_t& outputs) {
  if (target.rfind("torch.ops.aten._assert_", 0) == 0 ||
      target.rfind("torch.ops.aten.sym_constrain_range", 0) == 0) {
    return true;
  }
  bool sizes = !outputs.empty();
  for (const auto& output : outputs) {
    sizes = sizes && kind_of(output).rfind("as_sym_", 0) == 0;
  }
  return sizes && (target.rfind("torch.ops.", 0) != 0 ||
                   target.rfind("torch.ops.aten.sym_", 0) == 0);
}

// Turns an ExportedProgram into a graph.
class ProgramReader {
 public:
  ProgramReader(const std::string& path, StateValues values)
      : where_("'" + path + "'"),
        path_(path),
        values_(values),
        archive_(path),
        program_(archive_.program()) {}

  Graph read() {
    check_schema();
    graph_.states_shapes = true;
    const json& signature = program_.at("graph_module").at("signature");
    const auto& inputs = array_of(signature.at("input_specs"));
    const std::string output = find_output(array_of(signature.at("output_specs")));
    read_input(inputs);
    read_state(inputs);
    read_constants(inputs);
    read_nodes();
    where_ = "'" + path_ + "'";
    graph_.output = id_of(output);
    verify(graph_);
    report_frozen();
    return std::move(graph_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("[model] " + where_ + " " + what);
  }
  [[noreturn]] void fail(const std::string& what) const {
    fail_pt2(path_, "is damaged: " + what);
  }

  // Returns the graph that is read: the program's, or that of a region.
  const json& source() const {
    return region_ != nullptr ? *region_ : program_.at("graph_module").at("graph");
  }

  void check_schema() const {
    const int64_t major = integer_of(program_.at("schema_version").at("major"));
    if (major != kSchema) {
      refuse(fmt::format(
          "has version {} of the schema of torch.export, expected {}; export it with "
          "torch 2.6 to 2.15",
          major, kSchema));
    }
  }

  // --- the input

  void read_input(const json::array_t& specs) {
    std::vector<std::string> names;
    for (const auto& spec : specs) {
      const std::string& kind = kind_of(spec);
      if (kind == "user_input") {
        const json& argument = spec.at(kind).at("arg");
        names.push_back(
            kind_of(argument) == "as_tensor"
                ? string_of(argument.at("as_tensor").at("name"))
                : "");
      } else if (
          kind != "parameter" && kind != "buffer" && kind != "tensor_constant" &&
          kind != "constant_input") {
        refuse(
            "has an input of the kind '" + kind +
            "', which tandem does not support; remove it from the model");
      }
    }
    if (names.size() != 1 || names[0].empty()) {
      refuse(fmt::format(
          "has {} inputs, expected one tensor; export a model whose forward() has one "
          "argument",
          names.size()));
    }
    find_symbol(array_of(source().at("tensor_values").at(names[0]).at("sizes")));
    read_limits();
    graph_.input = add(value_of(names[0], ValueKind::input));
    const auto& shape = graph_.value(graph_.input).shape;
    for (size_t i = 1; i < shape.size(); ++i) {
      if (shape[i].per_sample != 0) {
        refuse_input(text_of(shape));
      }
    }
  }

  // Reads the limits of the number of samples. PyTorch states 2 as the smallest number
  // of a dimension without limits, and does not check it.
  void read_limits() {
    const auto found = program_.at("range_constraints").find(symbol_);
    if (found == program_.at("range_constraints").end()) {
      return;
    }
    const json& least = found->at("min_val");
    const json& most = found->at("max_val");
    if (!least.is_null() && integer_of(least) > 2) {
      graph_.min_samples = integer_of(least);
    }
    if (!most.is_null()) {
      graph_.max_samples = integer_of(most);
    }
    if (graph_.max_samples < std::max<int64_t>(1, graph_.min_samples)) {
      fail("the number of samples has no possible value");
    }
  }

  // Sets the symbol of the number of samples.
  void find_symbol(const json::array_t& sizes) {
    if (sizes.empty()) {
      refuse_input("[]");
    }
    const json& first = sizes[0];
    if (kind_of(first) == "as_int") {
      refuse(fmt::format(
          "has a fixed batch size of {}, expected a dynamic one; export it with {}",
          integer_of(first.at("as_int")), kExportLine));
    }
    const std::string& expression = string_of(first.at("as_expr").at("expr_str"));
    const auto symbol = symbol_of(expression);
    if (!symbol) {
      refuse_input("[" + readable_size(expression) + ", ...]");
    }
    symbol_ = *symbol;
  }

  [[noreturn]] void refuse_input(const std::string& shape) const {
    refuse(
        "has an input of shape " + shape +
        ", expected the number of samples, then fixed sizes; export it with " +
        kExportLine);
  }

  // --- values

  Size size_of(const json& size) const {
    if (kind_of(size) == "as_int") {
      const int64_t fixed = integer_of(size.at("as_int"));
      if (fixed < 0 || fixed > kLargestSize) {
        fail("a size is " + std::to_string(fixed));
      }
      return {fixed, 0};
    }
    const std::string& expression = string_of(size.at("as_expr").at("expr_str"));
    const auto parsed = parse_size(expression, symbol_);
    if (!parsed) {
      refuse(
          "has the size " + readable_size(expression) +
          ", expected a linear function of the number of samples, " + symbol_ +
          "; make only the first size of the input dynamic");
    }
    return *parsed;
  }

  Value value_of(const std::string& name, ValueKind kind) const {
    const json& meta = source().at("tensor_values").at(name);
    const auto dtype = pt2_dtype(integer_of(meta.at("dtype")));
    if (!dtype || !pt2_layout(integer_of(meta.at("layout")))) {
      refuse(
          "has a value '" + name +
          "' with a dtype or layout that tandem does not support; use float32");
    }
    Value value;
    value.kind = kind;
    value.name = name;
    value.dtype = *dtype;
    for (const auto& size : array_of(meta.at("sizes"))) {
      value.shape.push_back(size_of(size));
    }
    return value;
  }

  ValueId add(Value value) {
    const std::string name = value.name;
    value.name = unique_name(name);
    const ValueId id = add_value(graph_, std::move(value));
    name_value(name, id);
    return id;
  }

  // Regions may have values with the names of other values.
  std::string unique_name(const std::string& name) {
    std::string unique = name;
    for (size_t i = names_of_values_.size(); !names_of_values_.insert(unique).second;
         ++i) {
      unique = name + "_in_region_" + std::to_string(i);
    }
    return unique;
  }

  void name_value(const std::string& name, ValueId id) {
    if (!ids_.emplace(name, id).second) {
      fail("two values are named '" + name + "'");
    }
  }

  ValueId id_of(const std::string& name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) {
      fail("no node computes the value '" + name + "'");
    }
    return found->second;
  }

  void set_tensor(Value& value, const at::Tensor& tensor) const {
    if (value.dtype != tensor.scalar_type() ||
        value.shape != fixed_shape(tensor.sizes())) {
      fail("the value '" + value.name + "' has another shape or dtype than its tensor");
    }
    value.tensor = tensor;
  }

  // --- parameters, buffers and constants

  // An input of the graph that is a tensor of the state dict.
  struct StateInput {
    std::string name;
    std::string state_name;
    ValueKind kind;
  };

  void read_state(const json::array_t& specs) {
    std::vector<StateInput> inputs;
    for (const auto& spec : specs) {
      const std::string& kind = kind_of(spec);
      const json& input = spec.at(kind);
      if (kind == "parameter") {
        inputs.push_back(
            {string_of(input.at("arg").at("name")),
             string_of(input.at("parameter_name")), ValueKind::parameter});
      } else if (kind == "buffer" && input.at("persistent") == true) {
        inputs.push_back(
            {string_of(input.at("arg").at("name")), string_of(input.at("buffer_name")),
             ValueKind::buffer});
      }
    }
    std::map<std::string, std::vector<const StateInput*>> by_state_name;
    for (const auto& input : inputs) {
      by_state_name[input.state_name].push_back(&input);
    }
    for (const auto& tied :
         find_tied(archive_.state(values_ == StateValues::read), path_)) {
      std::vector<const StateInput*> uses;
      for (const auto& name : tied.names) {
        for (const auto* input : by_state_name[name]) {
          uses.push_back(input);
        }
      }
      add_state(tied, uses);
    }
    for (const auto& input : inputs) {
      if (ids_.count(input.name) == 0) {
        fail("it has no tensor '" + input.state_name + "'");
      }
    }
  }

  // Adds a tensor of the state dict that these inputs of the graph are.
  void add_state(const TiedTensor& tied, const std::vector<const StateInput*>& uses) {
    const std::string& state_name = tied.names[0];
    Value value;
    if (uses.empty()) {
      // Tensors that the graph does not use. Python's state dict has them.
      value = tandem::value_of(ValueKind::buffer, "unused_" + state_name, tied.tensor);
    } else {
      value = value_of(uses[0]->name, uses[0]->kind);
    }
    value.state_name = state_name;
    set_tensor(value, tied.tensor);
    if (value.kind == ValueKind::parameter) {
      if (value.dtype != at::kFloat && value.dtype != at::kDouble) {
        refuse(fmt::format(
            "has a parameter '{}' of dtype {}, expected float32 or float64; convert "
            "the model with float() before the export",
            state_name, c10::toString(value.dtype)));
      }
      value.tensor.set_requires_grad(
          source().at("tensor_values").at(value.name).at("requires_grad") == true);
    }
    const ValueId id = add(std::move(value));
    for (size_t i = 1; i < uses.size(); ++i) {
      name_value(uses[i]->name, id);
    }
    for (size_t i = 1; i < tied.names.size(); ++i) {
      graph_.aliases.push_back({tied.names[i], id});
    }
  }

  void read_constants(const json::array_t& specs) {
    const auto tensors = archive_.constants();
    for (const auto& spec : specs) {
      const std::string& kind = kind_of(spec);
      const json& input = spec.at(kind);
      const bool buffer = kind == "buffer" && input.at("persistent") != true;
      if (!buffer && kind != "tensor_constant") {
        continue;
      }
      const std::string& name =
          string_of(input.at(buffer ? "buffer_name" : "tensor_constant_name"));
      const auto found = tensors.find(name);
      if (found == tensors.end()) {
        fail("it has no tensor '" + name + "'");
      }
      Value value =
          value_of(string_of(input.at("arg").at("name")), ValueKind::constant);
      value.state_name = name;
      set_tensor(value, found->second);
      add(std::move(value));
    }
  }

  // --- nodes

  void read_nodes() {
    for (const auto& node : array_of(source().at("nodes"))) {
      if (string_of(node.at("target")) == kGradRegion) {
        read_region(node);
      } else {
        read_node(node);
      }
    }
  }

  // Adds the nodes of a region without gradients. Autograd does not record them,
  // because their inputs are detached. Their changes in place still reach these inputs.
  void read_region(const json& source) {
    const auto& inputs = array_of(source.at("inputs"));
    if (inputs.size() < 2) {
      fail("a region has no graph");
    }
    const bool records = inputs[0].at("arg").at("as_bool") == true;
    const json& inner = inputs[1].at("arg").at("as_graph").at("graph");
    const auto& names = array_of(inner.at("inputs"));
    if (region_ != nullptr && records) {
      refuse("has torch.enable_grad() in torch.no_grad(); remove enable_grad()");
    }
    if (inputs.size() != names.size() + 2) {
      fail("a region has another number of inputs than its graph");
    }
    std::map<std::string, ValueId> inside;
    for (size_t i = 0; i < names.size(); ++i) {
      const json& outer = inputs[i + 2].at("arg");
      if (kind_of(outer) == "as_tensor") {
        const ValueId id = id_of(string_of(outer.at("as_tensor").at("name")));
        inside[string_of(names[i].at("as_tensor").at("name"))] =
            records ? id : detached(id);
      }
    }
    const json* outside = std::exchange(region_, &inner);
    std::swap(ids_, inside);
    read_nodes();
    std::vector<ValueId> results;
    for (const auto& output : array_of(inner.at("outputs"))) {
      results.push_back(
          kind_of(output) == "as_tensor"
              ? id_of(string_of(output.at("as_tensor").at("name")))
              : -1);
    }
    std::swap(ids_, inside);
    region_ = outside;
    name_results(source, results);
  }

  // Names the results of a region.
  void name_results(const json& source, const std::vector<ValueId>& results) {
    std::vector<std::string> names;
    for (const auto& output : array_of(source.at("outputs"))) {
      const auto more = names_in(output);
      names.insert(names.end(), more.begin(), more.end());
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].empty() && (i >= results.size() || results[i] < 0)) {
        fail("a region does not compute '" + names[i] + "'");
      }
      if (!names[i].empty()) {
        name_value(names[i], results[i]);
      }
    }
  }

  // Returns the value itself if it has no gradient.
  ValueId detached(ValueId id) {
    const Value& value = graph_.value(id);
    const bool has_gradient =
        (value.kind == ValueKind::parameter || value.kind == ValueKind::output) &&
        at::isFloatingType(value.dtype);
    if (!has_gradient) {
      return id;
    }
    const ValueId result = add_value(
        graph_, {ValueKind::output, unique_name(value.name + "_detached"), value.dtype,
                 value.shape});
    add_node(graph_, "aten::detach", "", {Argument::of_value(id)}, {result});
    return result;
  }

  // The dtype of a new tensor depends on torch.set_default_dtype() in the exporting
  // program, so the call gets the dtype that the file states.
  void fix_dtype(Node& node, const c10::FunctionSchema& schema) const {
    const auto index = schema.argumentIndexWithName("dtype");
    bool reads = false;
    for_each_value(node, [&](ValueId) { reads = true; });
    if (index && !reads && node.outputs.size() == 1 && node.outputs[0] >= 0 &&
        node.arguments[static_cast<size_t>(*index)].is_none()) {
      node.arguments[static_cast<size_t>(*index)] =
          Argument::of(static_cast<int64_t>(graph_.value(node.outputs[0]).dtype));
    }
  }

  void report_frozen() const {
    const std::string frozen = find_frozen(graph_, names_);
    if (!frozen.empty()) {
      log_info(
          "[model] all batch norms are frozen, because " + where_ + " has " + frozen +
          " in evaluation mode; to train them, export with " + kExportLine);
    }
  }

  void read_node(const json& source) {
    const std::string& target = string_of(source.at("target"));
    const auto& outputs = array_of(source.at("outputs"));
    const json& inputs = source.at("inputs");
    Node node;
    node.name = name_of(target, outputs);
    node.module = module_of(source.at("metadata"));
    node.source = source_of(source.at("metadata"));
    where_ = "'" + path_ + "': " + name_for_messages(node);
    if (is_about_sizes(target, outputs)) {
      return;
    }
    const auto& schema = find_operator(node, target, inputs, names_);
    node.arguments = arguments_of(inputs, schema, names_);
    if (const auto problem = find_problem(node, schema)) {
      refuse(*problem);
    }
    for (const auto& output : outputs) {
      add_outputs(node, output);
    }
    if (const auto problem = find_unsafe(node, schema)) {
      refuse(*problem);
    }
    fix_dtype(node, schema);
    node.number = static_cast<int64_t>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
  }

  // Returns the names of the tensors in an output, which is a tensor or a list of
  // tensors; one empty name for another output, such as None.
  static std::vector<std::string> names_in(const json& output) {
    const std::string& kind = kind_of(output);
    const json& value = output.at(kind);
    std::vector<std::string> names;
    if (kind == "as_tensors") {
      for (const auto& tensor : array_of(value)) {
        names.push_back(string_of(tensor.at("name")));
      }
    } else {
      names.push_back(kind == "as_tensor" ? string_of(value.at("name")) : "");
    }
    return names;
  }

  // Returns the name of the first output.
  static std::string name_of(const std::string& target, const json::array_t& outputs) {
    const auto names =
        outputs.empty() ? std::vector<std::string>() : names_in(outputs[0]);
    return names.empty() || names[0].empty() ? target : names[0];
  }

  void add_outputs(Node& node, const json& output) {
    const std::string& kind = kind_of(output);
    if (kind != "as_tensor" && kind != "as_tensors" && kind != "as_none") {
      refuse(
          "returns a value of the kind '" + kind +
          "', expected tensors; do not read numbers from tensors in the model");
    }
    for (const auto& name : names_in(output)) {
      node.outputs.push_back(kind == "as_none" ? -1 : add(value_of(name, kOutput)));
    }
  }

  std::string find_output(const json::array_t& specs) const {
    std::vector<std::string> names;
    for (const auto& spec : specs) {
      const std::string& kind = kind_of(spec);
      if (kind != "user_output") {
        refuse(
            "has an output of the kind '" + kind +
            "', expected the model's output only; save the result of "
            "torch.export.export, without run_decompositions()");
      }
      const json& argument = spec.at(kind).at("arg");
      names.push_back(
          kind_of(argument) == "as_tensor"
              ? string_of(argument.at("as_tensor").at("name"))
              : "");
    }
    if (names.size() != 1 || names[0].empty()) {
      refuse(fmt::format(
          "has {} outputs, expected one tensor; export a model whose forward() returns "
          "one tensor",
          names.size()));
    }
    return names[0];
  }

  static constexpr ValueKind kOutput = ValueKind::output;

  // The file, and the node that is read, for messages.
  std::string where_;
  const std::string& path_;
  StateValues values_;
  const Pt2Archive archive_;
  const json program_;
  const Pt2Names names_ = {
      [this](const std::string& name) { return id_of(name); },
      [this](const std::string& name) {
        return size_of(source().at("sym_int_values").at(name));
      },
      [this](const std::string& what) { refuse(what); }};
  // Graph of the region that is read; null outside of regions.
  const json* region_ = nullptr;
  // Symbol of the number of samples.
  std::string symbol_;
  // Values by their names in the program or in the region.
  std::map<std::string, ValueId> ids_;
  std::set<std::string> names_of_values_;
  Graph graph_;
};

}  // namespace

const char* const kExportLine =
    "torch.export.export(model.train(), (x,), "
    "dynamic_shapes=({0: torch.export.Dim(\"batch\")},))";

Graph read_pt2(const std::string& path, StateValues values) {
  try {
    return ProgramReader(path, values).read();
  } catch (const nlohmann::json::exception& error) {
    fail_pt2(path, "is damaged (" + first_line(error) + ")");
  } catch (const c10::Error& error) {
    fail_pt2(path, "is damaged (" + first_line(error) + ")");
  }
}

}  // namespace tandem
