#include "tandem/graph/pt2_nodes.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/pt2.h"
#include "tandem/graph/pt2_json.h"
#include "tandem/graph/random_operators.h"

namespace tandem {

namespace {

using nlohmann::json;

// Returns whether a schema requires floating-point numbers, alone or in a list.
bool wants_floats(const c10::Argument& wanted) {
  const auto type = without_optional(wanted.type());
  const auto list = type->cast<c10::ListType>();
  const auto element =
      list == nullptr ? type : without_optional(list->getElementType());
  return element->kind() == c10::TypeKind::FloatType;
}

bool wants_list(const c10::Argument& wanted) {
  return without_optional(wanted.type())->kind() == c10::TypeKind::ListType;
}

// JSON has no numbers for infinity and NaN, so these are texts.
double float_of(const json& value) {
  if (value == "Infinity" || value == "-Infinity") {
    return (value == "Infinity" ? 1 : -1) * std::numeric_limits<double>::infinity();
  }
  if (value == "NaN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return value.is_number() ? value.get<double>()
                           : value.get_ref<const json::number_float_t&>();
}

bool boolean_of(const json& value) {
  return value.get_ref<const json::boolean_t&>();
}

template <typename Convert>
auto list_of(const json& values, const Convert& convert) {
  std::vector<decltype(convert(values))> list;
  for (const auto& value : values.get_ref<const json::array_t&>()) {
    list.push_back(convert(value));
  }
  return list;
}

// Converts arguments to those of a schema.
class Converter {
 public:
  explicit Converter(const Pt2Names& names) : names_(names) {}

  Argument convert(const json& argument, const c10::Argument& wanted) const {
    const std::string& kind = kind_of(argument);
    const json& value = argument.at(kind);
    const bool list = !kind.empty() && kind.back() == 's';
    const auto found =
        list ? convert_list(kind, value, wanted) : convert_one(kind, value, wanted);
    if (!found) {
      names_.refuse(
          "has the argument '" + wanted.name() + "' of the kind '" + kind +
          "', which tandem does not support");
    }
    return *found;
  }

 private:
  std::optional<Argument> convert_one(
      const std::string& kind, const json& value, const c10::Argument& wanted) const {
    if (kind == "as_none") {
      return Argument();
    }
    if (kind == "as_tensor") {
      return Argument::of_value(names_.value(string_of(value.at("name"))));
    }
    if (kind == "as_optional_tensor") {
      return optional_tensor(value);
    }
    if (kind == "as_int") {
      return integer(integer_of(value), wanted);
    }
    if (kind == "as_float") {
      return Argument::of(float_of(value));
    }
    if (kind == "as_bool") {
      return Argument::of(boolean_of(value));
    }
    if (kind == "as_string") {
      return Argument::of(string_of(value));
    }
    if (kind == "as_sym_int") {
      return symbolic_integer(value, wanted);
    }
    if (kind == "as_scalar_type") {
      return enumerator(pt2_dtype(integer_of(value)));
    }
    if (kind == "as_layout") {
      return enumerator(pt2_layout(integer_of(value)));
    }
    if (kind == "as_memory_format") {
      return enumerator(pt2_memory_format(integer_of(value)));
    }
    if (kind == "as_device") {
      return device(wanted);
    }
    return std::nullopt;
  }

  std::optional<Argument> convert_list(
      const std::string& kind, const json& value, const c10::Argument& wanted) const {
    if (kind == "as_tensors") {
      return Argument::of_list(list_of(value, [&](const json& tensor) {
        return Argument::of_value(names_.value(string_of(tensor.at("name"))));
      }));
    }
    if (kind == "as_optional_tensors") {
      return Argument::of_list(
          list_of(value, [&](const json& tensor) { return optional_tensor(tensor); }));
    }
    if (kind == "as_ints") {
      return integers(list_of(value, &integer_of), wanted);
    }
    if (kind == "as_floats") {
      return Argument::of(list_of(value, &float_of));
    }
    if (kind == "as_bools") {
      return Argument::of(list_of(value, &boolean_of));
    }
    if (kind == "as_strings") {
      return Argument::of(list_of(
          value, [](const json& text) { return std::string(string_of(text)); }));
    }
    if (kind == "as_sym_ints") {
      return sizes(value, wanted);
    }
    return std::nullopt;
  }

  Argument optional_tensor(const json& value) const {
    return kind_of(value) == "as_none"
               ? Argument()
               : Argument::of_value(
                     names_.value(string_of(value.at("as_tensor").at("name"))));
  }

  static Argument integer(int64_t number, const c10::Argument& wanted) {
    if (wants_list(wanted)) {
      return integers({number}, wanted);
    }
    return wants_floats(wanted) ? Argument::of(static_cast<double>(number))
                                : Argument::of(number);
  }

  static Argument integers(std::vector<int64_t> numbers, const c10::Argument& wanted) {
    if (wants_floats(wanted)) {
      return Argument::of(std::vector<double>(numbers.begin(), numbers.end()));
    }
    // A list of one number applies to each dimension.
    const auto count = static_cast<size_t>(std::max(wanted.N().value_or(1), 1));
    if (numbers.size() == 1) {
      numbers.resize(count, numbers[0]);
    }
    return Argument::of(std::move(numbers));
  }

  Argument symbolic_integer(const json& value, const c10::Argument& wanted) const {
    return kind_of(value) == "as_int"
               ? integer(integer_of(value.at("as_int")), wanted)
               : Argument::of_size(names_.size(string_of(value.at("as_name"))));
  }

  // Returns a list of numbers if no size depends on the number of samples.
  Argument sizes(const json& values, const c10::Argument& wanted) const {
    std::vector<int64_t> numbers;
    std::vector<Argument> arguments;
    bool fixed = true;
    for (const auto& value : values.get_ref<const json::array_t&>()) {
      if (kind_of(value) == "as_int") {
        numbers.push_back(integer_of(value.at("as_int")));
        arguments.push_back(Argument::of(numbers.back()));
        continue;
      }
      const Size size = names_.size(string_of(value.at("as_name")));
      fixed = fixed && size.per_sample == 0;
      numbers.push_back(size.fixed);
      arguments.push_back(Argument::of_size(size));
    }
    return fixed ? integers(numbers, wanted) : Argument::of_list(std::move(arguments));
  }

  // IValues have dtypes, layouts and memory formats as integers.
  template <typename Enum>
  static std::optional<Argument> enumerator(const std::optional<Enum>& value) {
    return value ? std::optional<Argument>(Argument::of(static_cast<int64_t>(*value)))
                 : std::nullopt;
  }

  // The file's device is that of the export.
  static Argument device(const c10::Argument& wanted) {
    return wanted.type()->kind() == c10::TypeKind::OptionalType
               ? Argument()
               : Argument::of(at::Device(at::kCPU));
  }

  const Pt2Names& names_;
};

constexpr std::string_view kTensor = "Tensor";

// Returns an argument of the node; null if the schema has none of this name.
const Argument* find_argument(
    const Node& node, const c10::FunctionSchema& schema, const std::string& name) {
  const auto index = schema.argumentIndexWithName(name);
  return index ? &node.arguments[static_cast<size_t>(*index)] : nullptr;
}

bool is_zero(const Argument& argument) {
  return argument.kind == Argument::Kind::constant && argument.constant.isDouble() &&
         argument.constant.toDouble() == 0;
}

bool is_false(const Argument& argument) {
  return argument.kind == Argument::Kind::constant && argument.constant.isBool() &&
         !argument.constant.toBool();
}

// Returns the argument that is true in training; null if the operator has none.
const Argument* find_mode(const Node& node, const c10::FunctionSchema& schema) {
  const Argument* mode = nullptr;
  for (const char* name : {"training", "train", "use_input_stats"}) {
    mode = mode == nullptr ? find_argument(node, schema, name) : mode;
  }
  return mode;
}

// Returns false if the target is not an operator.
bool set_operator(Node& node, const std::string& target) {
  static const std::string kStart = "torch.ops.";
  const size_t first = target.find('.', kStart.size());
  const size_t second = target.find('.', first + 1);
  if (target.rfind(kStart, 0) != 0 || first == std::string::npos ||
      second == std::string::npos) {
    return false;
  }
  node.target = target.substr(kStart.size(), first - kStart.size()) +
                "::" + target.substr(first + 1, second - first - 1);
  node.overload = target.substr(second + 1);
  if (node.overload == "default") {
    node.overload.clear();
  }
  return true;
}

// Returns whether an argument is a number although `schema` requires a tensor. Python
// accepts numbers in place of tensors.
bool has_number_for_tensor(const json& inputs, const c10::FunctionSchema& schema) {
  for (const auto& input : inputs.get_ref<const json::array_t&>()) {
    const auto index = schema.argumentIndexWithName(string_of(input.at("name")));
    const std::string& kind = kind_of(input.at("arg"));
    if (index &&
        without_optional(schema.arguments()[static_cast<size_t>(*index)].type())
                ->kind() == c10::TypeKind::TensorType &&
        (kind == "as_int" || kind == "as_float" || kind == "as_bool" ||
         kind == "as_sym_int")) {
      return true;
    }
  }
  return false;
}

std::string entry_of(const json& metadata, const char* name) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? "" : string_of(*found);
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  const size_t end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string line_at(const std::string& text, size_t begin) {
  return trimmed(text.substr(begin, text.find('\n', begin) - begin));
}

// Returns whether a path belongs to PyTorch's code. Also returns true for code that
// PyTorch generates, such as "<eval_with_key>.47".
bool is_in_pytorch(const std::string& path) {
  return path.rfind("torch/", 0) == 0 || path.find("/torch/") != std::string::npos ||
         path.rfind('<', 0) == 0;
}

}  // namespace

std::vector<Argument> arguments_of(
    const json& inputs, const c10::FunctionSchema& schema, const Pt2Names& names) {
  const Converter converter(names);
  const auto& wanted = schema.arguments();
  std::vector<std::optional<Argument>> given(wanted.size());
  for (const auto& input : inputs.get_ref<const json::array_t&>()) {
    const std::string& name = string_of(input.at("name"));
    const auto index = schema.argumentIndexWithName(name);
    if (!index) {
      names.refuse("has an argument '" + name + "', which this LibTorch lacks");
    }
    const auto i = static_cast<size_t>(*index);
    given[i] = converter.convert(input.at("arg"), wanted[i]);
  }
  std::vector<Argument> arguments;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!given[i] && !wanted[i].default_value()) {
      names.refuse("has no argument '" + wanted[i].name() + "'");
    }
    arguments.push_back(
        given[i] ? std::move(*given[i]) : Argument::of(*wanted[i].default_value()));
  }
  return arguments;
}

const c10::FunctionSchema& find_operator(
    Node& node, const std::string& target, const nlohmann::json& inputs,
    const Pt2Names& names) {
  static const std::string kRegions = "torch.ops.higher_order.";
  if (target.rfind(kRegions, 0) == 0) {
    names.refuse(
        "is the region or control flow '" + target.substr(kRegions.size()) +
        "', which tandem does not support; write the model without it");
  }
  if (!set_operator(node, target)) {
    names.refuse(
        "calls the function '" + target +
        "', which is not an operator of PyTorch; use an operator on tensors");
  }
  const auto* schema = schema_of(node.target, node.overload);
  if (schema == nullptr) {
    names.refuse(
        "calls the operator " + operator_name(node) +
        ", which this LibTorch lacks; use another operator in the model, or a newer "
        "LibTorch");
  }
  const size_t place = node.overload.find(kTensor);
  if (place != std::string::npos && has_number_for_tensor(inputs, *schema)) {
    std::string overload = node.overload;
    overload.replace(place, kTensor.size(), "Scalar");
    if (const auto* scalar = schema_of(node.target, overload)) {
      node.overload = overload;
      schema = scalar;
    }
  }
  return *schema;
}

std::optional<std::string> find_problem(
    const Node& node, const c10::FunctionSchema& schema) {
  const OperatorRow& row = operator_row(node.target);
  if (row.has(kUsesFiles)) {
    return "reads or writes a file, which a network must not do; remove the operator";
  }
  if (!row.runs() && draws_random_numbers(node)) {
    return "draws random numbers that tandem cannot reproduce; draw them with an "
           "operator such as bernoulli, rand or randn";
  }
  if (node.target.rfind("aten::as_strided", 0) == 0) {
    return "depends on strides, which differ between versions of LibTorch; use slices "
           "or reshape";
  }
  const Argument* mode = find_mode(node, schema);
  if (row.has(kIsBatchNorm) || row.has(kIsDropout)) {
    return std::nullopt;
  }
  const Argument* mean = find_argument(node, schema, "running_mean");
  const Argument* dropout = find_argument(node, schema, "dropout");
  const bool keeps_statistics = mean != nullptr && !mean->is_none() && !row.runs();
  const bool drops = mode != nullptr && mean == nullptr && !row.runs() &&
                     (dropout == nullptr || !is_zero(*dropout));
  if (keeps_statistics || drops) {
    return "depends on training or evaluation mode, which tandem supports in batch "
           "norm "
           "and dropout only; use these, and export without run_decompositions()";
  }
  return std::nullopt;
}

std::string find_frozen(const Graph& graph, const Pt2Names& names) {
  const Node* evaluation = nullptr;
  bool drops = false;
  for (const auto& node : graph.nodes) {
    const auto& row = operator_row(node.target);
    const Argument* mode = find_mode(node, schema_of(node));
    if (mode == nullptr || !(row.has(kIsBatchNorm) || row.has(kIsDropout))) {
      continue;
    }
    if (!is_false(*mode)) {
      return "";
    }
    evaluation = evaluation == nullptr ? &node : evaluation;
    drops = drops || row.has(kIsDropout);
  }
  if (drops) {
    names.refuse(
        "has " + name_for_messages(*evaluation) +
        " in evaluation mode; export the network for training: " + kExportLine);
  }
  return evaluation == nullptr ? "" : name_for_messages(*evaluation);
}

// Form: "KEY,PATH,CLASS;KEY,PATH,CLASS", the innermost module last. A path ends with
// "@1" in a second call of a module.
std::string module_of(const json& metadata) {
  const std::string stack = entry_of(metadata, "nn_module_stack");
  const std::string last = stack.substr(stack.rfind(';') + 1);
  const size_t begin = last.find(',') + 1;
  const size_t end = last.find(',', begin);
  if (begin == 0 || end == std::string::npos) {
    return "";
  }
  const std::string path = last.substr(begin, end - begin);
  // Nodes that PyTorch inserts itself.
  return path.rfind("_empty_nn_module_stack", 0) == 0 ? ""
                                                      : path.substr(0, path.find('@'));
}

// Form of a frame: 'File "PATH", line NUMBER, in FUNCTION', then a line of code.
std::string source_of(const json& metadata) {
  static const std::string kFile = "File \"";
  static const std::string kLine = "\", line ";
  const std::string trace = entry_of(metadata, "stack_trace");
  std::string found;
  for (size_t next = trace.find(kFile); next != std::string::npos;
       next = trace.find(kFile, next)) {
    next += kFile.size();
    const size_t end = trace.find(kLine, next);
    if (end == std::string::npos) {
      break;
    }
    const std::string path = trace.substr(next, end - next);
    next = end + kLine.size();
    if (is_in_pytorch(path)) {
      continue;
    }
    const std::string line =
        trace.substr(next, trace.find_first_not_of("0123456789", next) - next);
    found = path.substr(path.rfind('/') + 1) + ":" + line;
    const size_t code = trace.find('\n', next);
    if (code != std::string::npos) {
      const std::string text = line_at(trace, code + 1);
      found += text.empty() || text.rfind(kFile, 0) == 0 ? "" : ": " + text;
    }
  }
  return found;
}

}  // namespace tandem
