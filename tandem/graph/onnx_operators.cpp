#include "tandem/graph/onnx_operators.h"

#include <cmath>
#include <map>

#include "tandem/base/error.h"

namespace tandem {

namespace {

const c10::IValue& constant(const OnnxCall& call, size_t argument) {
  const Argument& found = call.node.arguments[argument];
  if (found.kind != Argument::Kind::constant) {
    throw OnnxObstacle{"with sizes that depend on the batch"};
  }
  return found.constant;
}

int64_t fixed(const Size& size) {
  if (size.per_sample != 0) {
    throw OnnxObstacle{"along the samples of the batch"};
  }
  return size.fixed;
}

std::string number(const OnnxCall& call, double value) {
  return call.to.number(value, call.output().dtype);
}

// --- operators on single values

OnnxNames same(const OnnxCall& call) {
  return {call.tensor(0)};
}

OnnxNames unary(const OnnxCall& call) {
  return {call.to.add(call.row.type, {call.tensor(0)})};
}

OnnxNames binary(const OnnxCall& call) {
  return {call.to.add(call.row.type, {call.operand(0), call.operand(1)})};
}

// add(x, y, alpha), sub(x, y, alpha)
OnnxNames sum_of(const OnnxCall& call) {
  std::string other = call.operand(1);
  const double alpha = call.number(2);
  if (alpha != 1) {
    other = call.to.add("Mul", {other, number(call, alpha)});
  }
  return {call.to.add(call.row.type, {call.operand(0), other})};
}

// rsub(x, y, alpha) = y - alpha * x
OnnxNames reversed_difference(const OnnxCall& call) {
  const auto scaled =
      call.to.add("Mul", {call.operand(0), number(call, call.number(2))});
  return {call.to.add("Sub", {call.operand(1), scaled})};
}

OnnxNames quotient(const OnnxCall& call) {
  if (call.node.arguments.size() > 2 && call.has(2)) {
    throw OnnxObstacle{"with rounding_mode"};
  }
  return binary(call);
}

OnnxNames cast_to_output(const OnnxCall& call) {
  return {call.operand(0)};
}

OnnxNames rsqrt(const OnnxCall& call) {
  return {call.to.add("Reciprocal", {call.to.add("Sqrt", {call.tensor(0)})})};
}

OnnxNames square(const OnnxCall& call) {
  return {call.to.add("Mul", {call.tensor(0), call.tensor(0)})};
}

OnnxNames silu(const OnnxCall& call) {
  const auto x = call.tensor(0);
  return {call.to.add("Mul", {x, call.to.add("Sigmoid", {x})})};
}

OnnxNames mish(const OnnxCall& call) {
  const auto x = call.tensor(0);
  const auto softplus = call.to.add("Softplus", {x});
  return {call.to.add("Mul", {x, call.to.add("Tanh", {softplus})})};
}

// log(sigmoid(x)) would be -inf for small x.
OnnxNames log_sigmoid(const OnnxCall& call) {
  const auto negative = call.to.add("Neg", {call.tensor(0)});
  return {call.to.add("Neg", {call.to.add("Softplus", {negative})})};
}

// softplus(x, beta, threshold). Above the default threshold, 20, PyTorch returns x,
// which differs by less than 3e-9.
OnnxNames softplus(const OnnxCall& call) {
  if (call.number(1) != 1 || call.number(2) < 20) {
    throw OnnxObstacle{"with beta or threshold"};
  }
  return unary(call);
}

// gelu(x, approximate) = x / 2 * (1 + function(inner))
OnnxNames gelu(const OnnxCall& call) {
  auto& to = call.to;
  const auto x = call.tensor(0);
  std::string gate;
  if (call.text(1) == "tanh") {
    const auto cube = to.add("Mul", {to.add("Mul", {x, x}), x});
    const auto inner =
        to.add("Add", {x, to.add("Mul", {cube, number(call, 0.044715)})});
    gate = to.add("Tanh", {to.add("Mul", {inner, number(call, std::sqrt(M_2_PI))})});
  } else {
    gate = to.add("Erf", {to.add("Mul", {x, number(call, M_SQRT1_2)})});
  }
  const auto half = to.add("Mul", {x, number(call, 0.5)});
  return {to.add("Mul", {half, to.add("Add", {gate, number(call, 1)})})};
}

OnnxNames hardsigmoid(const OnnxCall& call) {
  return {call.to.add(
      "HardSigmoid", {call.tensor(0)}, {{"alpha", 1.0 / 6}, {"beta", 0.5}})};
}

// clamp(x, min, max) and hardtanh(x, min, max)
OnnxNames clip(const OnnxCall& call) {
  OnnxNames inputs = {call.tensor(0)};
  for (const size_t bound : {1, 2}) {
    inputs.push_back(call.has(bound) ? number(call, call.number(bound)) : "");
  }
  return {call.to.add("Clip", inputs)};
}

OnnxNames relu6(const OnnxCall& call) {
  return {call.to.add("Clip", {call.tensor(0), number(call, 0), number(call, 6)})};
}

// leaky_relu(x, slope), celu(x, alpha)
OnnxNames with_alpha(const OnnxCall& call) {
  return {call.to.add(call.row.type, {call.tensor(0)}, {{"alpha", call.number(1)}})};
}

// elu(x, alpha, scale, input_scale)
OnnxNames elu(const OnnxCall& call) {
  if (call.number(2) != 1 || call.number(3) != 1) {
    throw OnnxObstacle{"with scale"};
  }
  return with_alpha(call);
}

// --- operators along dimensions

// softmax(x, dim, dtype)
OnnxNames softmax(const OnnxCall& call) {
  return {call.to.add(
      call.row.type, {call.operand(0)}, {{"axis", call.dimension(call.integer(1))}})};
}

// mean(x, dtype), mean(x, dim, keepdim, dtype), and the same for sum. ReduceSum has the
// dimensions as an input.
OnnxNames reduce(const OnnxCall& call) {
  const std::string type = call.row.type;
  const bool all = call.node.arguments.size() == 2 || !call.has(1);
  std::vector<int64_t> dims = all ? std::vector<int64_t>() : call.integers(1);
  for (auto& dim : dims) {
    dim = call.dimension(dim);
  }
  OnnxNames inputs = {call.operand(0)};
  const bool keeps = call.node.arguments.size() > 2 && call.flag(2);
  std::vector<OnnxAttribute> attributes = {{"keepdims", int64_t{keeps}}};
  if (!dims.empty() && type == "ReduceSum") {
    inputs.push_back(call.to.integers(dims));
  } else if (!dims.empty()) {
    attributes.push_back({"axes", dims});
  }
  return {call.to.add(type, inputs, attributes)};
}

constexpr OnnxRow kOnnxRows[] = {
    {"aten::conv1d", &onnx_convolution},
    {"aten::conv2d", &onnx_convolution},
    {"aten::conv3d", &onnx_convolution},
    {"aten::conv_transpose1d", &onnx_transposed_convolution},
    {"aten::conv_transpose2d", &onnx_transposed_convolution},
    {"aten::conv_transpose3d", &onnx_transposed_convolution},
    {"aten::linear", &onnx_linear},
    {"aten::addmm", &onnx_addmm},
    {"aten::matmul", &binary, "MatMul"},
    {"aten::mm", &binary, "MatMul"},
    {"aten::bmm", &binary, "MatMul"},
    {"aten::batch_norm", &onnx_batch_norm},
    {"aten::layer_norm", &onnx_layer_norm},
    {"aten::group_norm", &onnx_group_norm},
    {"aten::embedding", &onnx_embedding},
    {"aten::scaled_dot_product_attention", &onnx_attention},
    {"aten::max_pool1d", &onnx_max_pool},
    {"aten::max_pool2d", &onnx_max_pool},
    {"aten::max_pool3d", &onnx_max_pool},
    {"aten::avg_pool1d", &onnx_average_pool},
    {"aten::avg_pool2d", &onnx_average_pool},
    {"aten::avg_pool3d", &onnx_average_pool},
    {"aten::adaptive_avg_pool1d", &onnx_adaptive_pool, "AveragePool"},
    {"aten::adaptive_avg_pool2d", &onnx_adaptive_pool, "AveragePool"},
    {"aten::adaptive_avg_pool3d", &onnx_adaptive_pool, "AveragePool"},
    {"aten::adaptive_max_pool1d", &onnx_adaptive_pool, "MaxPool"},
    {"aten::adaptive_max_pool2d", &onnx_adaptive_pool, "MaxPool"},
    {"aten::adaptive_max_pool3d", &onnx_adaptive_pool, "MaxPool"},
    // Activations
    {"aten::relu", &unary, "Relu"},
    {"aten::relu6", &relu6},
    {"aten::leaky_relu", &with_alpha, "LeakyRelu"},
    {"aten::prelu", &onnx_prelu},
    {"aten::elu", &elu, "Elu"},
    {"aten::celu", &with_alpha, "Celu"},
    {"aten::selu", &unary, "Selu"},
    {"aten::gelu", &gelu},
    {"aten::silu", &silu},
    {"aten::mish", &mish},
    {"aten::softplus", &softplus, "Softplus"},
    {"aten::sigmoid", &unary, "Sigmoid"},
    {"aten::log_sigmoid", &log_sigmoid},
    {"aten::tanh", &unary, "Tanh"},
    {"aten::hardtanh", &clip},
    {"aten::hardswish", &unary, "HardSwish"},
    {"aten::hardsigmoid", &hardsigmoid},
    {"aten::clamp", &clip},
    {"aten::softmax", &softmax, "Softmax"},
    {"aten::log_softmax", &softmax, "LogSoftmax"},
    // Arithmetic
    {"aten::add", &sum_of, "Add"},
    {"aten::sub", &sum_of, "Sub"},
    {"aten::rsub", &reversed_difference},
    {"aten::mul", &binary, "Mul"},
    {"aten::div", &quotient, "Div"},
    {"aten::pow", &binary, "Pow"},
    {"aten::maximum", &binary, "Max"},
    {"aten::minimum", &binary, "Min"},
    {"aten::neg", &unary, "Neg"},
    {"aten::abs", &unary, "Abs"},
    {"aten::exp", &unary, "Exp"},
    {"aten::log", &unary, "Log"},
    {"aten::sqrt", &unary, "Sqrt"},
    {"aten::rsqrt", &rsqrt},
    {"aten::square", &square},
    {"aten::reciprocal", &unary, "Reciprocal"},
    {"aten::sin", &unary, "Sin"},
    {"aten::cos", &unary, "Cos"},
    {"aten::erf", &unary, "Erf"},
    {"aten::mean", &reduce, "ReduceMean"},
    {"aten::sum", &reduce, "ReduceSum"},
    // Values in another order
    {"aten::view", &onnx_reshape},
    {"aten::reshape", &onnx_reshape},
    {"aten::flatten", &onnx_reshape},
    {"aten::unflatten", &onnx_reshape},
    {"aten::squeeze", &onnx_reshape},
    {"aten::unsqueeze", &onnx_reshape},
    {"aten::permute", &onnx_permute},
    {"aten::transpose", &onnx_transpose},
    {"aten::t", &onnx_transpose},
    {"aten::expand", &onnx_expand},
    {"aten::expand_as", &onnx_expand},
    {"aten::cat", &onnx_cat},
    {"aten::concat", &onnx_cat},
    {"aten::stack", &onnx_stack},
    {"aten::select", &onnx_select},
    {"aten::slice", &onnx_slice},
    {"aten::narrow", &onnx_narrow},
    {"aten::chunk", &onnx_chunk},
    {"aten::split", &onnx_split},
    {"aten::split_with_sizes", &onnx_split},
    {"aten::unbind", &onnx_unbind},
    {"aten::pad", &onnx_pad},
    {"aten::constant_pad_nd", &onnx_pad},
    // Operators that return their input in evaluation mode, or change only its dtype
    {"aten::dropout", &same},
    {"aten::feature_dropout", &same},
    {"aten::contiguous", &same},
    {"aten::clone", &same},
    {"aten::detach", &same},
    {"aten::alias", &same},
    {"aten::to", &cast_to_output},
    {"aten::type_as", &cast_to_output},
};

}  // namespace

bool OnnxCall::has(size_t argument) const {
  return !node.arguments[argument].is_none();
}

std::string OnnxCall::tensor(size_t argument) const {
  return has(argument) ? to.name_of(node.arguments[argument].value) : "";
}

std::string OnnxCall::operand(size_t argument) const {
  const Argument& found = node.arguments[argument];
  switch (found.kind) {
    case Argument::Kind::value:
      return as_output(tensor(argument), value(argument).dtype);
    case Argument::Kind::size:
      return as_output(to.reshape(to.sizes({found.size}), {}), at::kLong);
    default:
      return tandem::number(*this, number(argument));
  }
}

std::string OnnxCall::as_output(const std::string& value, at::ScalarType from) const {
  const at::ScalarType dtype = output().dtype;
  return from == dtype ? value : to.add("Cast", {value}, {{"to", onnx_dtype(dtype)}});
}

int64_t OnnxCall::integer(size_t argument) const {
  const Argument& found = node.arguments[argument];
  return found.kind == Argument::Kind::size ? fixed(found.size)
                                            : constant(*this, argument).toInt();
}

std::vector<int64_t> OnnxCall::integers(size_t argument) const {
  const Argument& found = node.arguments[argument];
  if (found.kind != Argument::Kind::list) {
    const c10::IValue& value = constant(*this, argument);
    return value.isInt() ? std::vector<int64_t>{value.toInt()} : value.toIntVector();
  }
  std::vector<int64_t> values;
  for (const auto& element : found.list) {
    values.push_back(
        element.kind == Argument::Kind::size ? fixed(element.size)
                                             : element.constant.toInt());
  }
  return values;
}

double OnnxCall::number(size_t argument) const {
  return constant(*this, argument).toScalar().toDouble();
}

bool OnnxCall::flag(size_t argument) const {
  return constant(*this, argument).toBool();
}

std::string OnnxCall::text(size_t argument) const {
  return constant(*this, argument).toStringRef();
}

const Value& OnnxCall::value(size_t argument) const {
  return graph.value(node.arguments[argument].value);
}

const std::vector<Size>& OnnxCall::shape(size_t argument) const {
  return value(argument).shape;
}

int64_t OnnxCall::rank(size_t argument) const {
  return static_cast<int64_t>(shape(argument).size());
}

const Value& OnnxCall::output() const {
  for (const ValueId id : node.outputs) {
    if (id >= 0) {
      return graph.value(id);
    }
  }
  throw OnnxObstacle{"without a used output"};
}

int64_t OnnxCall::dimension(int64_t dimension) const {
  return dimension < 0 ? dimension + rank(0) : dimension;
}

int64_t OnnxCall::fixed_size(size_t argument, int64_t dimension) const {
  return fixed(shape(argument).at(static_cast<size_t>(dimension)));
}

const OnnxRow* onnx_row(const std::string& target) {
  static const auto rows = [] {
    std::map<std::string, const OnnxRow*> all;
    for (const auto& row : kOnnxRows) {
      all[row.name] = &row;
    }
    return all;
  }();
  std::string name = target;
  while (!name.empty() && name.back() == '_') {
    name.pop_back();
  }
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : found->second;
}

}  // namespace tandem
