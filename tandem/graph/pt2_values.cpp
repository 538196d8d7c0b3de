#include <fmt/core.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/pt2_json.h"
#include "tandem/graph/pt2_program.h"

namespace tandem {

namespace {

// Number of samples in hints.
constexpr int64_t kHint = 2;

[[noreturn]] void refuse_program(const std::string& owner, const std::string& what) {
  throw ConfigError(
      "[model] " + owner + " has " + what +
      ", which a file of torch.export cannot contain; write only the weights, to a "
      "file .pt or .safetensors");
}

template <typename T>
int64_t checked_number(T value, const std::string& owner, const std::string& what) {
  const auto number = pt2_number(value);
  if (!number) {
    refuse_program(owner, what);
  }
  return *number;
}

// --- sizes

// Form: that of sympy.srepr.
std::string expression_of(const Size& size) {
  std::string text =
      fmt::format("Symbol('{}', positive=True, integer=True)", kPt2Symbol);
  if (size.per_sample != 1) {
    text = fmt::format("Mul(Integer({}), {})", size.per_sample, text);
  }
  return size.fixed == 0 ? text : fmt::format("Add({}, Integer({}))", text, size.fixed);
}

Pt2Json symbolic(const std::string& expression, int64_t hint) {
  return {
      {"as_expr", {{"expr_str", expression}, {"hint", {{"as_int", hint}}}}},
  };
}

// Returns the strides of a contiguous tensor. A stride is the product of the sizes
// after its dimension.
Pt2Json contiguous_strides(const std::vector<Size>& shape) {
  Pt2Json strides = Pt2Json::array();
  int64_t fixed = 1;
  int64_t hint = 1;
  std::string factors;
  for (size_t i = shape.size(); i-- > 0;) {
    strides.insert(
        strides.begin(),
        factors.empty()
            ? Pt2Json{{"as_int", fixed}}
            : symbolic(fmt::format("Mul(Integer({}){})", fixed, factors), hint));
    const Size& size = shape[i];
    hint *= size.at(kHint);
    if (size.per_sample == 0) {
      fixed *= size.fixed;
    } else {
      factors += ", " + expression_of(size);
    }
  }
  return strides;
}

Pt2Json float_json(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

Pt2Json floats_json(const std::vector<double>& values) {
  Pt2Json list = Pt2Json::array();
  for (const double value : values) {
    list.push_back(float_json(value));
  }
  return list;
}

// IValues have dtypes, layouts and memory formats as integers.
Pt2Json integer_json(
    int64_t value, const c10::Argument& wanted, const std::string& owner) {
  const std::string type = without_optional(wanted.real_type())->str();
  const std::string what = "an unknown " + type;
  if (type == "ScalarType") {
    return {
        {"as_scalar_type",
         checked_number(static_cast<at::ScalarType>(value), owner, what)}};
  }
  if (type == "Layout") {
    return {{"as_layout", checked_number(static_cast<at::Layout>(value), owner, what)}};
  }
  if (type == "MemoryFormat") {
    return {
        {"as_memory_format",
         checked_number(static_cast<at::MemoryFormat>(value), owner, what)}};
  }
  return {{"as_int", value}};
}

}  // namespace

Pt2Json pt2_size(const Size& size) {
  return size.per_sample == 0 ? Pt2Json{{"as_int", size.fixed}}
                              : symbolic(expression_of(size), size.at(kHint));
}

Pt2Json pt2_tensor(
    at::ScalarType dtype, const std::vector<Size>& shape, bool requires_grad,
    const std::string& owner) {
  Pt2Json sizes = Pt2Json::array();
  for (const auto& size : shape) {
    sizes.push_back(pt2_size(size));
  }
  const std::string what = std::string("the dtype ") + c10::toString(dtype);
  return {
      {"dtype", checked_number(dtype, owner, what)},
      {"sizes", std::move(sizes)},
      {"requires_grad", requires_grad},
      {"device", {{"type", "cpu"}, {"index", nullptr}}},
      {"strides", contiguous_strides(shape)},
      {"storage_offset", {{"as_int", 0}}},
      {"layout", checked_number(at::kStrided, owner, "a layout")},
  };
}

Pt2Json pt2_constant(
    const c10::IValue& value, const c10::Argument& wanted, const std::string& owner) {
  if (value.isNone()) {
    return {{"as_none", true}};
  }
  if (value.isBool()) {
    return {{"as_bool", value.toBool()}};
  }
  if (value.isInt()) {
    return integer_json(value.toInt(), wanted, owner);
  }
  if (value.isDouble()) {
    return {{"as_float", float_json(value.toDouble())}};
  }
  if (value.isString()) {
    return {{"as_string", value.toStringRef()}};
  }
  if (value.isDevice()) {
    return {{"as_device", {{"type", "cpu"}, {"index", nullptr}}}};
  }
  if (value.isIntList()) {
    return {{"as_ints", value.toIntVector()}};
  }
  if (value.isDoubleList()) {
    return {{"as_floats", floats_json(value.toDoubleVector())}};
  }
  if (value.isBoolList()) {
    Pt2Json list = Pt2Json::array();
    for (const bool element : value.toBoolList()) {
      list.push_back(element);
    }
    return {{"as_bools", list}};
  }
  refuse_program(
      owner, "the argument '" + wanted.name() + "' of type " + value.tagKind());
}

}  // namespace tandem
