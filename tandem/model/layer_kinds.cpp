#include "tandem/model/layer_kinds.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <cmath>

#include "tandem/config/line_format.h"
#include "tandem/config/options/setting.h"

namespace tandem {

namespace {

using Dims = std::vector<int64_t>;

// To write a value and read it again takes a CPU about as long as this number of
// multiplications. Without this term, the cost of a first convolution would be too low.
constexpr double kCostPerValue = 10;

double cost_of_values(const Layer&, const InputShape& output) {
  return kCostPerValue *
         static_cast<double>(output.channels * output.height * output.width);
}

// Returns the number of windows along an image's side of `size` pixels.
int64_t extent(const Layer& layer, int64_t size) {
  return (size + 2 * layer.padding - layer.kernel + layer.stride) / layer.stride;
}

// Returns the number of elements of x[0], even if x has no rows.
int64_t elements_per_row(const at::Tensor& x) {
  int64_t elements = 1;
  for (int64_t dim = 1; dim < x.dim(); ++dim) {
    elements *= x.size(dim);
  }
  return elements;
}

// Draws a weight with torch.nn.init.kaiming_uniform_(a=sqrt(5)), and a bias. The
// arithmetic and the order of random numbers are those of
// torch/nn/modules/{conv,linear}.py.
LayerState draw(const Dims& dims, const at::Generator& generator) {
  LayerState state;
  state.weight = at::empty(dims);
  state.bias = at::empty({dims[0]});
  const auto fan_in = static_cast<double>(elements_per_row(state.weight));
  const double a = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + a * a));
  const double std = gain / std::sqrt(fan_in);
  const double weight_bound = std::sqrt(3.0) * std;
  const double bias_bound = 1 / std::sqrt(fan_in);
  state.weight.uniform_(-weight_bound, weight_bound, generator);
  state.bias.uniform_(-bias_bound, bias_bound, generator);
  return state;
}

// --- conv2d

Dims conv2d_weight(const Layer& layer) {
  return {layer.out, layer.in, layer.kernel, layer.kernel};
}

LayerState conv2d_state(
    const Layer& layer, at::ScalarType, const at::Generator& generator) {
  return draw(conv2d_weight(layer), generator);
}

InputShape conv2d_output(const Layer& layer, const InputShape& input) {
  return {layer.out, extent(layer, input.height), extent(layer, input.width)};
}

double conv2d_cost(const Layer& layer, const InputShape& output) {
  const int64_t weights = layer.in * layer.out * layer.kernel * layer.kernel;
  return static_cast<double>(weights * output.height * output.width) +
         cost_of_values(layer, output);
}

at::Tensor conv2d_forward(const LayerCall& call, const at::Tensor& x) {
  const Layer& layer = call.layer;
  return at::conv2d(x, call.state.weight, call.state.bias, layer.stride, layer.padding);
}

std::string conv2d_repr(const Layer& layer) {
  const std::string padding =
      layer.padding == 0 ? "" : fmt::format(", padding=({0}, {0})", layer.padding);
  return fmt::format(
      "Conv2d({0}, {1}, kernel_size=({2}, {2}), stride=({3}, {3}){4})", layer.in,
      layer.out, layer.kernel, layer.stride, padding);
}

// --- linear

Dims linear_weight(const Layer& layer) {
  return {layer.out, layer.in};
}

LayerState linear_state(
    const Layer& layer, at::ScalarType, const at::Generator& generator) {
  return draw(linear_weight(layer), generator);
}

InputShape linear_output(const Layer& layer, const InputShape&) {
  return {layer.out, 1, 1};
}

double linear_cost(const Layer& layer, const InputShape& output) {
  return static_cast<double>(layer.in * layer.out) + cost_of_values(layer, output);
}

at::Tensor linear_forward(const LayerCall& call, const at::Tensor& x) {
  return at::linear(x, call.state.weight, call.state.bias);
}

std::string linear_repr(const Layer& layer) {
  return fmt::format(
      "Linear(in_features={}, out_features={}, bias=True)", layer.in, layer.out);
}

// --- batch_norm

Dims batch_norm_weight(const Layer& layer) {
  return {layer.out};
}

LayerState batch_norm_state(
    const Layer& layer, at::ScalarType dtype, const at::Generator&) {
  return {
      at::ones({layer.out}), at::zeros({layer.out}), at::zeros({layer.out}, dtype),
      at::ones({layer.out}, dtype), at::zeros({}, at::kLong)};
}

at::Tensor batch_norm_forward(const LayerCall& call, const at::Tensor& x) {
  LayerState& state = call.state;
  const bool training = call.context.training;
  if (training) {
    state.num_batches.add_(1);
  }
  if (training && call.stack_statistics) {
    return sync_batch_norm(
        x, state.weight, state.bias, state.running_mean, state.running_var,
        kBatchNormMomentum, kBatchNormEpsilon, call.stack_statistics);
  }
  return at::batch_norm(
      x, state.weight, state.bias, state.running_mean, state.running_var, training,
      kBatchNormMomentum, kBatchNormEpsilon, false);
}

std::string batch_norm_repr(const Layer& layer) {
  return fmt::format(
      "BatchNorm2d({}, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)",
      layer.out);
}

// --- relu

at::Tensor relu_forward(const LayerCall& call, const at::Tensor& x) {
  return call.in_place ? at::Tensor(x).relu_() : x.relu();
}

std::string relu_repr(const Layer&) {
  return "ReLU()";
}

// --- max_pool2d

InputShape max_pool2d_output(const Layer& layer, const InputShape& input) {
  return {input.channels, extent(layer, input.height), extent(layer, input.width)};
}

at::Tensor max_pool2d_forward(const LayerCall& call, const at::Tensor& x) {
  return at::max_pool2d(x, call.layer.kernel, call.layer.stride);
}

std::string max_pool2d_repr(const Layer& layer) {
  return fmt::format(
      "MaxPool2d(kernel_size={}, stride={}, padding=0, dilation=1, ceil_mode=False)",
      layer.kernel, layer.stride);
}

// --- dropout, dropout2d

at::Tensor drop(const LayerCall& call, const at::Tensor& x, bool whole_channels) {
  if (!call.context.training) {
    return x;
  }
  const int64_t elements = whole_channels ? x.size(1) : elements_per_row(x);
  const auto dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto mask = dropout_mask(
                        call.context.samples, call.layer.place, x.size(0), elements,
                        call.layer.p, at::TensorOptions(dtype).device(x.device()))
                        .to(x.scalar_type());
  return x.mul(
      whole_channels ? mask.view({x.size(0), x.size(1), 1, 1}) : mask.view(x.sizes()));
}

at::Tensor dropout_forward(const LayerCall& call, const at::Tensor& x) {
  return drop(call, x, false);
}

at::Tensor dropout2d_forward(const LayerCall& call, const at::Tensor& x) {
  return drop(call, x, x.dim() == 4);
}

std::string dropout_repr(const Layer& layer) {
  return fmt::format("Dropout(p={}, inplace=False)", float_text(layer.p));
}

std::string dropout2d_repr(const Layer& layer) {
  return fmt::format("Dropout2d(p={}, inplace=False)", float_text(layer.p));
}

// --- flatten

InputShape flatten_output(const Layer&, const InputShape& input) {
  return {input.channels * input.height * input.width, 1, 1};
}

at::Tensor flatten_forward(const LayerCall&, const at::Tensor& x) {
  return x.flatten(1);
}

// --- log_softmax

at::Tensor log_softmax_forward(const LayerCall&, const at::Tensor& x) {
  // Under autocast, x is bfloat16, which is too coarse for losses near 0.01.
  return at::log_softmax(x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x, 1);
}

// --- table and factories

constexpr LayerKindRow kLayerRows[] = {
    {LayerKind::conv2d, "conv2d", &conv2d_forward, &conv2d_cost, &conv2d_repr,
     RoundedValues::all, kBeginsStage | kKeepsOnlyInput | kFusesReluAfter,
     &conv2d_output, &conv2d_weight, &conv2d_state},
    {LayerKind::linear, "linear", &linear_forward, &linear_cost, &linear_repr,
     RoundedValues::all, kBeginsStage | kKeepsOnlyInput | kFusesReluAfter,
     &linear_output, &linear_weight, &linear_state},
    {LayerKind::batch_norm2d, "batch_norm", &batch_norm_forward, &cost_of_values,
     &batch_norm_repr, RoundedValues::output, kFusesReluAfter, nullptr,
     &batch_norm_weight, &batch_norm_state},
    {LayerKind::relu, "relu", &relu_forward, &cost_of_values, &relu_repr},
    {LayerKind::max_pool2d, "max_pool2d", &max_pool2d_forward, &cost_of_values,
     &max_pool2d_repr, RoundedValues::none, kFusesReluAfter | kFusesReluBefore,
     &max_pool2d_output},
    {LayerKind::dropout, "dropout", &dropout_forward, &cost_of_values, &dropout_repr,
     RoundedValues::output, kIsDropout},
    // ATen's name is feature_dropout.
    {LayerKind::dropout2d, "dropout2d", &dropout2d_forward, &cost_of_values,
     &dropout2d_repr, RoundedValues::output, kIsDropout},
    {LayerKind::flatten, "flatten", &flatten_forward, nullptr, nullptr,
     RoundedValues::none, kNoLayerTrait, &flatten_output},
    {LayerKind::log_softmax, "log_softmax", &log_softmax_forward, &cost_of_values,
     nullptr, RoundedValues::output_in_o2},
};

Layer plain(LayerKind kind) {
  Layer layer;
  layer.kind = kind;
  return layer;
}

Layer named(LayerKind kind, const std::string& name, int64_t in, int64_t out) {
  Layer layer = plain(kind);
  layer.name = name;
  layer.in = in;
  layer.out = out;
  return layer;
}

}  // namespace

Layer conv2d(
    const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t padding) {
  Layer layer = named(LayerKind::conv2d, name, in, out);
  layer.kernel = kernel;
  layer.padding = padding;
  return layer;
}

Layer linear(const std::string& name, int64_t in, int64_t out) {
  return named(LayerKind::linear, name, in, out);
}

Layer batch_norm2d(const std::string& name, int64_t channels) {
  return named(LayerKind::batch_norm2d, name, channels, channels);
}

Layer relu() {
  return plain(LayerKind::relu);
}

Layer max_pool2d(int64_t kernel) {
  Layer layer = plain(LayerKind::max_pool2d);
  layer.kernel = kernel;
  layer.stride = kernel;
  return layer;
}

Layer dropout(double p) {
  Layer layer = plain(LayerKind::dropout);
  layer.p = p;
  return layer;
}

Layer dropout2d(double p) {
  Layer layer = plain(LayerKind::dropout2d);
  layer.p = p;
  return layer;
}

Layer flatten() {
  return plain(LayerKind::flatten);
}

Layer log_softmax() {
  return plain(LayerKind::log_softmax);
}

InputShape output_of(const Layer& layer, const InputShape& input) {
  const auto output = row_of(layer).output;
  return output == nullptr ? input : output(layer, input);
}

const LayerKindRow& row_of(const Layer& layer) {
  return row_of_kind(kLayerRows, layer.kind);
}

}  // namespace tandem
