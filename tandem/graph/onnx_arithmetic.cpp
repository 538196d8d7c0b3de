// Functions of several values, and tensors of constants, in ONNX.

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

// Returns floor(x / y). ONNX's Div of integers rounds toward 0.
std::string floor_of_quotient(
    const OnnxCall& call, const std::string& x, const std::string& y) {
  if (at::isFloatingType(call.output().dtype)) {
    return call.add("Floor", {call.add("Div", {x, y})});
  }
  const auto rest = call.add("Mod", {x, y});
  return call.add("Div", {call.add("Sub", {x, rest}), y});
}

}  // namespace

OnnxNames onnx_binary(const OnnxCall& call) {
  return {call.add(call.row.type, {call.operand(0), call.operand(1)})};
}

// add(x, y, alpha), sub(x, y, alpha). ONNX cannot add booleans.
OnnxNames onnx_sum_of(const OnnxCall& call) {
  if (call.output().dtype == at::kBool) {
    return {call.add("Or", {call.operand(0), call.operand(1)})};
  }
  std::string other = call.operand(1);
  const double alpha = call.number_or("alpha", 1);
  if (alpha != 1) {
    other = call.add("Mul", {other, call.constant(alpha)});
  }
  return {call.add(call.row.type, {call.operand(0), other})};
}

// rsub(x, y, alpha) = y - alpha * x
OnnxNames onnx_reversed_difference(const OnnxCall& call) {
  const auto scaled = call.add("Mul", {call.operand(0), call.constant(call.number(2))});
  return {call.add("Sub", {call.operand(1), scaled})};
}

// div(x, y, rounding_mode)
OnnxNames onnx_quotient(const OnnxCall& call) {
  const auto mode = call.find("rounding_mode");
  if (!mode) {
    return onnx_binary(call);
  }
  const auto x = call.operand(0);
  const auto y = call.operand(1);
  if (call.text(*mode) == "floor") {
    return {floor_of_quotient(call, x, y)};
  }
  const auto quotient = call.add("Div", {x, y});
  if (!at::isFloatingType(call.output().dtype)) {
    return {quotient};
  }
  const auto floor = call.add("Floor", {call.add("Abs", {quotient})});
  return {call.add("Mul", {call.add("Sign", {quotient}), floor})};
}

OnnxNames onnx_floor_quotient(const OnnxCall& call) {
  return {floor_of_quotient(call, call.operand(0), call.operand(1))};
}

// remainder(x, y), with the sign of y, and fmod(x, y), with the sign of x
OnnxNames onnx_remainder(const OnnxCall& call) {
  const auto x = call.operand(0);
  const auto y = call.operand(1);
  if (call.row.type == std::string("fmod")) {
    return {call.add("Mod", {x, y}, {{"fmod", int64_t{1}}})};
  }
  if (!at::isFloatingType(call.output().dtype)) {
    return {call.add("Mod", {x, y})};
  }
  const auto multiple = call.add("Mul", {floor_of_quotient(call, x, y), y});
  return {call.add("Sub", {x, multiple})};
}

OnnxNames onnx_compare(const OnnxCall& call) {
  auto dtype = call.common_dtype(0, 1);
  const std::string type = call.row.type;
  // ONNX orders only numbers.
  if (dtype == at::kBool && type != "Equal" && type != "NotEqual") {
    dtype = at::kInt;
  }
  const OnnxNames inputs = {call.operand(0, dtype), call.operand(1, dtype)};
  return {
      type == "NotEqual" ? call.add("Not", {call.add("Equal", inputs)})
                         : call.add(type, inputs)};
}

OnnxNames onnx_logical(const OnnxCall& call) {
  return {call.add(
      call.row.type, {call.operand(0, at::kBool), call.operand(1, at::kBool)})};
}

OnnxNames onnx_bitwise(const OnnxCall& call) {
  if (call.output().dtype != at::kBool) {
    throw OnnxObstacle{"on integers, which ONNX has from opset 18 on"};
  }
  return onnx_logical(call);
}

// aten::where(condition, x, y)
OnnxNames onnx_where(const OnnxCall& call) {
  if (call.node.arguments.size() != 3) {
    throw OnnxObstacle{"with a number of results that depends on the data"};
  }
  return {call.add(
      "Where", {call.operand(0, at::kBool), call.operand(1), call.operand(2)})};
}

// masked_fill(x, mask, value)
OnnxNames onnx_masked_fill(const OnnxCall& call) {
  return {call.add("Where", {call.tensor(1), call.operand(2), call.operand(0)})};
}

// lerp(x, end, weight)
OnnxNames onnx_lerp(const OnnxCall& call) {
  const auto x = call.operand(0);
  const auto step = call.add("Sub", {call.operand(1), x});
  return {call.add("Add", {x, call.add("Mul", {step, call.operand(2)})})};
}

// addcmul(x, a, b, value) and addcdiv(x, a, b, value)
OnnxNames onnx_addc(const OnnxCall& call) {
  auto product = call.add(call.row.type, {call.operand(1), call.operand(2)});
  if (call.number(3) != 1) {
    product = call.add("Mul", {product, call.constant(call.number(3))});
  }
  return {call.add("Add", {call.operand(0), product})};
}

// Tensors of one number, such as zeros(size) and full_like(x, fill_value). The row has
// the number, or the name of its argument.
OnnxNames onnx_filled(const OnnxCall& call) {
  const auto argument = call.find(call.row.type);
  const auto number =
      argument ? call.operand(*argument) : call.constant(std::stod(call.row.type));
  return {call.add("Expand", {number, call.to.sizes(call.output().shape)})};
}

// arange(start, end, step)
OnnxNames onnx_arange(const OnnxCall& call) {
  const auto start = call.find("start");
  const auto step = call.find("step");
  return {call.add(
      "Range",
      {start ? call.operand(*start) : call.constant(0), call.operand(*call.find("end")),
       step ? call.operand(*step) : call.constant(1)})};
}

// logaddexp(x, y) = max(x, y) + log(1 + exp(-|x - y|))
OnnxNames onnx_log_add_exp(const OnnxCall& call) {
  const auto x = call.operand(0);
  const auto y = call.operand(1);
  const auto distance = call.add("Abs", {call.add("Sub", {x, y})});
  const auto soft = call.add("Softplus", {call.add("Neg", {distance})});
  return {call.add("Add", {call.add("Max", {x, y}), soft})};
}

}  // namespace tandem
