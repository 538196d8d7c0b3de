// Normalization in ONNX.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

// Returns an optional parameter; if it is missing, a constant.
std::string parameter_or(
    const OnnxCall& call, size_t argument, double value, int64_t size) {
  return call.has(argument)
             ? call.tensor(argument)
             : call.to.constant(at::full({size}, value, call.output().dtype));
}

// Multiplies by the weight and adds the bias of each channel, in the arguments `weight`
// and `weight` + 1.
std::string with_channel_parameters(
    const OnnxCall& call, std::string x, size_t weight) {
  if (call.has(weight)) {
    x = call.add("Mul", {x, call.over_channels(call.tensor(weight))});
  }
  if (call.has(weight + 1)) {
    x = call.add("Add", {x, call.over_channels(call.tensor(weight + 1))});
  }
  return x;
}

// Batch norm with the statistics of the batch.
std::string normalised_by_batch(const OnnxCall& call) {
  std::vector<int64_t> dims = {0};
  for (int64_t i = 2; i < call.rank(0); ++i) {
    dims.push_back(i);
  }
  const auto mean = [&](const std::string& value) {
    return call.add("ReduceMean", {value}, {{"axes", dims}});
  };
  const auto x = call.tensor(0);
  const auto distance = call.add("Sub", {x, mean(x)});
  const auto variance = mean(call.add("Mul", {distance, distance}));
  const auto deviation =
      call.add("Sqrt", {call.add("Add", {variance, call.constant(call.number(7))})});
  return with_channel_parameters(call, call.add("Div", {distance, deviation}), 1);
}

}  // namespace

// batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps, ...)
OnnxNames onnx_batch_norm(const OnnxCall& call) {
  if (!call.has(3)) {
    return {normalised_by_batch(call)};
  }
  const int64_t channels = call.fixed_size(3, 0);
  return {call.add(
      "BatchNormalization",
      {call.tensor(0), parameter_or(call, 1, 1, channels),
       parameter_or(call, 2, 0, channels), call.tensor(3), call.tensor(4)},
      {{"epsilon", call.number(7)}})};
}

// instance_norm(x, weight, bias, running_mean, running_var, use_input_stats, momentum,
// eps, ...). Running statistics replace those of the sample in evaluation mode.
OnnxNames onnx_instance_norm(const OnnxCall& call) {
  if (call.has(3)) {
    return onnx_batch_norm(call);
  }
  const int64_t channels = call.fixed_size(0, 1);
  return {call.add(
      "InstanceNormalization",
      {call.tensor(0), parameter_or(call, 1, 1, channels),
       parameter_or(call, 2, 0, channels)},
      {{"epsilon", call.number(7)}})};
}

// layer_norm(x, normalized_shape, weight, bias, eps, ...)
OnnxNames onnx_layer_norm(const OnnxCall& call) {
  const auto sizes = call.integers(1);
  const auto weight = call.has(2)
                          ? call.tensor(2)
                          : call.to.constant(at::ones(sizes, call.output().dtype));
  return {call.add(
      "LayerNormalization", {call.tensor(0), weight, call.tensor(3)},
      {{"axis", -static_cast<int64_t>(sizes.size())}, {"epsilon", call.number(4)}})};
}

// rms_norm(x, normalized_shape, weight, eps)
OnnxNames onnx_rms_norm(const OnnxCall& call) {
  const auto x = call.tensor(0);
  std::vector<int64_t> dims;
  for (size_t i = call.integers(1).size(); i > 0; --i) {
    dims.push_back(-static_cast<int64_t>(i));
  }
  const double epsilon =
      call.has(3) ? call.number(3) : std::numeric_limits<float>::epsilon();
  const auto mean = call.add("ReduceMean", {call.add("Mul", {x, x})}, {{"axes", dims}});
  const auto scale =
      call.add("Sqrt", {call.add("Add", {mean, call.constant(epsilon)})});
  const auto result = call.add("Div", {x, scale});
  return {call.has(2) ? call.add("Mul", {result, call.tensor(2)}) : result};
}

// group_norm(x, groups, weight, bias, eps, ...): each group is normalised like
// a channel of instance norm. Reshape copies the size 0.
OnnxNames onnx_group_norm(const OnnxCall& call) {
  auto& to = call.to;
  const int64_t groups = call.integer(1);
  const auto dtype = call.output().dtype;
  const auto grouped =
      to.add("Reshape", {call.tensor(0), to.integers({0, groups, -1})});
  const auto normalised = to.add(
      "InstanceNormalization",
      {grouped, to.constant(at::ones({groups}, dtype)),
       to.constant(at::zeros({groups}, dtype))},
      {{"epsilon", call.number(4)}});
  return {with_channel_parameters(call, to.reshape(normalised, call.shape(0)), 2)};
}

}  // namespace tandem
