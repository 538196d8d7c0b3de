#include "tandem/graph/pt2_arguments.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/pt2_json.h"
#include "tandem/graph/pt2_types.h"

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
      const auto count = static_cast<size_t>(std::max(wanted.N().value_or(1), 1));
      return integers(std::vector<int64_t>(count, number), wanted);
    }
    return wants_floats(wanted) ? Argument::of(static_cast<double>(number))
                                : Argument::of(number);
  }

  static Argument integers(
      const std::vector<int64_t>& numbers, const c10::Argument& wanted) {
    return wants_floats(wanted)
               ? Argument::of(std::vector<double>(numbers.begin(), numbers.end()))
               : Argument::of(numbers);
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

}  // namespace tandem
