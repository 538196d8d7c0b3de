// Functions of single values in ONNX.

#include <cmath>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

OnnxNames onnx_same(const OnnxCall& call) {
  return {call.tensor(0)};
}

OnnxNames onnx_unary(const OnnxCall& call) {
  return {call.add(call.row.type, {call.operand(0)})};
}

OnnxNames onnx_cast_to_output(const OnnxCall& call) {
  return {call.operand(0)};
}

OnnxNames onnx_rsqrt(const OnnxCall& call) {
  return {call.add("Reciprocal", {call.add("Sqrt", {call.operand(0)})})};
}

OnnxNames onnx_square(const OnnxCall& call) {
  return {call.add("Mul", {call.tensor(0), call.tensor(0)})};
}

// exp2 and expm1
OnnxNames onnx_exponential(const OnnxCall& call) {
  const auto x = call.operand(0);
  if (call.row.type == std::string("2")) {
    return {call.add("Pow", {call.constant(2), x})};
  }
  return {call.add("Sub", {call.add("Exp", {x}), call.constant(1)})};
}

// log2, log10 and log1p
OnnxNames onnx_logarithm(const OnnxCall& call) {
  const auto x = call.operand(0);
  const std::string base = call.row.type;
  if (base == "1p") {
    return {call.add("Log", {call.add("Add", {x, call.constant(1)})})};
  }
  const double scale = 1 / std::log(std::stod(base));
  return {call.add("Mul", {call.add("Log", {x}), call.constant(scale)})};
}

// trunc(x) = sign(x) * floor(|x|)
OnnxNames onnx_truncated(const OnnxCall& call) {
  const auto x = call.tensor(0);
  const auto floor = call.add("Floor", {call.add("Abs", {x})});
  return {call.add("Mul", {call.add("Sign", {x}), floor})};
}

OnnxNames onnx_fraction(const OnnxCall& call) {
  return {call.add("Sub", {call.tensor(0), onnx_truncated(call)[0]})};
}

OnnxNames onnx_silu(const OnnxCall& call) {
  const auto x = call.tensor(0);
  return {call.add("Mul", {x, call.add("Sigmoid", {x})})};
}

OnnxNames onnx_mish(const OnnxCall& call) {
  const auto x = call.tensor(0);
  const auto softplus = call.add("Softplus", {x});
  return {call.add("Mul", {x, call.add("Tanh", {softplus})})};
}

// log(sigmoid(x)) would be -inf for small x.
OnnxNames onnx_log_sigmoid(const OnnxCall& call) {
  const auto negative = call.add("Neg", {call.tensor(0)});
  return {call.add("Neg", {call.add("Softplus", {negative})})};
}

// softplus(x, beta, threshold). Above the default threshold, 20, PyTorch returns x,
// which differs by less than 3e-9.
OnnxNames onnx_softplus(const OnnxCall& call) {
  const auto x = call.tensor(0);
  const double beta = call.number(1);
  if (beta == 1 && call.number(2) >= 20) {
    return {call.add("Softplus", {x})};
  }
  const auto scaled = call.add("Mul", {x, call.constant(beta)});
  const auto soft =
      call.add("Div", {call.add("Softplus", {scaled}), call.constant(beta)});
  const auto above = call.add("Greater", {scaled, call.constant(call.number(2))});
  return {call.add("Where", {above, x, soft})};
}

// gelu(x, approximate) = x / 2 * (1 + function(inner))
OnnxNames onnx_gelu(const OnnxCall& call) {
  const auto x = call.tensor(0);
  std::string gate;
  if (call.text(1) == "tanh") {
    const auto cube = call.add("Mul", {call.add("Mul", {x, x}), x});
    const auto inner =
        call.add("Add", {x, call.add("Mul", {cube, call.constant(0.044715)})});
    gate =
        call.add("Tanh", {call.add("Mul", {inner, call.constant(std::sqrt(M_2_PI))})});
  } else {
    gate = call.add("Erf", {call.add("Mul", {x, call.constant(M_SQRT1_2)})});
  }
  const auto half = call.add("Mul", {x, call.constant(0.5)});
  return {call.add("Mul", {half, call.add("Add", {gate, call.constant(1)})})};
}

OnnxNames onnx_hardsigmoid(const OnnxCall& call) {
  return {
      call.add("HardSigmoid", {call.tensor(0)}, {{"alpha", 1.0 / 6}, {"beta", 0.5}})};
}

// clamp(x, min, max) and hardtanh(x, min, max). The bounds of clamp can be tensors.
OnnxNames onnx_clip(const OnnxCall& call) {
  if (call.node.overload != "Tensor") {
    OnnxNames inputs = {call.operand(0)};
    for (const size_t bound : {1, 2}) {
      inputs.push_back(call.has(bound) ? call.operand(bound) : "");
    }
    return {call.add("Clip", inputs)};
  }
  std::string x = call.operand(0);
  for (const size_t bound : {1, 2}) {
    if (call.has(bound)) {
      x = call.add(bound == 1 ? "Max" : "Min", {x, call.operand(bound)});
    }
  }
  return {x};
}

// clamp_min(x, min) and clamp_max(x, max)
OnnxNames onnx_clip_bound(const OnnxCall& call) {
  return {call.add(call.row.type, {call.operand(0), call.operand(1)})};
}

OnnxNames onnx_relu6(const OnnxCall& call) {
  return {call.add("Clip", {call.tensor(0), call.constant(0), call.constant(6)})};
}

// leaky_relu(x, slope), celu(x, alpha)
OnnxNames onnx_with_alpha(const OnnxCall& call) {
  return {call.add(call.row.type, {call.tensor(0)}, {{"alpha", call.number(1)}})};
}

// elu(x, alpha, scale, input_scale)
OnnxNames onnx_elu(const OnnxCall& call) {
  if (call.number(2) != 1 || call.number(3) != 1) {
    throw OnnxObstacle{"with scale"};
  }
  return onnx_with_alpha(call);
}

// rrelu(x, lower, upper, training), whose slope is the mean in evaluation mode
OnnxNames onnx_rrelu(const OnnxCall& call) {
  const double slope = (call.number(1) + call.number(2)) / 2;
  return {call.add("LeakyRelu", {call.tensor(0)}, {{"alpha", slope}})};
}

// hardshrink(x, lambda) and softshrink(x, lambda). ONNX's Shrink subtracts the bias
// from numbers above lambda, and adds the bias to numbers below -lambda.
OnnxNames onnx_shrink(const OnnxCall& call) {
  const double lambda = call.number(1);
  const bool soft = call.row.type == std::string("soft");
  return {call.add(
      "Shrink", {call.tensor(0)}, {{"lambd", lambda}, {"bias", soft ? lambda : 0.0}})};
}

// threshold(x, threshold, value)
OnnxNames onnx_threshold(const OnnxCall& call) {
  const auto x = call.tensor(0);
  const auto above = call.add("Greater", {x, call.operand(1)});
  return {call.add("Where", {above, x, call.operand(2)})};
}

// glu(x, dim)
OnnxNames onnx_glu(const OnnxCall& call) {
  const int64_t dimension = call.dimension(call.integer(1));
  const int64_t half = call.fixed_size(0, dimension) / 2;
  const auto x = call.tensor(0);
  const auto gate = call.add("Sigmoid", {call.slice(x, dimension, half, 2 * half)});
  return {call.add("Mul", {call.slice(x, dimension, 0, half), gate})};
}

// prelu(x, weight)
OnnxNames onnx_prelu(const OnnxCall& call) {
  const bool one = call.fixed_size(1, 0) == 1 || call.rank(0) < 2;
  return {call.add(
      "PRelu",
      {call.tensor(0), one ? call.tensor(1) : call.over_channels(call.tensor(1))})};
}

OnnxNames onnx_logical_not(const OnnxCall& call) {
  if (call.row.type == std::string("bitwise") && call.value(0).dtype != at::kBool) {
    throw OnnxObstacle{"on integers, which ONNX has from opset 18 on"};
  }
  return {call.add("Not", {call.operand(0)})};
}

}  // namespace tandem
