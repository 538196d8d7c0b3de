#include "tandem/model/layer_kinds.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <fmt/core.h>

#include <cmath>
#include <iterator>

#include "tandem/base/text.h"
#include "tandem/config/options/setting.h"

namespace tandem {

namespace {

using Dims = std::vector<int64_t>;
using Arguments = std::vector<Argument>;

Argument pair(int64_t size) {
  return Argument::of(Dims{size, size});
}

Arguments input_only(const Layer&, ValueId x, const LayerValues&) {
  return {Argument::of_value(x)};
}

// Returns the number of windows along an image's side of `size` pixels.
int64_t extent(const Layer& layer, int64_t size) {
  return (size + 2 * layer.padding - layer.kernel + layer.stride) / layer.stride;
}

// Draws a weight with torch.nn.init.kaiming_uniform_(a=sqrt(5)), and a bias. The
// arithmetic and the order of random numbers are those of
// torch/nn/modules/{conv,linear}.py.
LayerState draw(const Dims& dims, const at::Generator& generator) {
  LayerState state;
  state.weight = at::empty(dims);
  state.bias = at::empty({dims[0]});
  const auto fan_in =
      static_cast<double>(c10::multiply_integers(dims.begin() + 1, dims.end()));
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

LayerState conv2d_state(
    const Layer& layer, at::ScalarType, const at::Generator& generator) {
  return draw({layer.out, layer.in, layer.kernel, layer.kernel}, generator);
}

InputShape conv2d_output(const Layer& layer, const InputShape& input) {
  return {layer.out, extent(layer, input.height), extent(layer, input.width)};
}

Arguments conv2d_arguments(const Layer& layer, ValueId x, const LayerValues& values) {
  return {
      Argument::of_value(x), Argument::of_value(values.weight),
      Argument::of_value(values.bias), pair(layer.stride), pair(layer.padding)};
}

std::string conv2d_repr(const Layer& layer) {
  const std::string padding =
      layer.padding == 0 ? "" : fmt::format(", padding=({0}, {0})", layer.padding);
  return fmt::format(
      "Conv2d({0}, {1}, kernel_size=({2}, {2}), stride=({3}, {3}){4})", layer.in,
      layer.out, layer.kernel, layer.stride, padding);
}

// --- linear

LayerState linear_state(
    const Layer& layer, at::ScalarType, const at::Generator& generator) {
  return draw({layer.out, layer.in}, generator);
}

InputShape linear_output(const Layer& layer, const InputShape&) {
  return {layer.out, 1, 1};
}

Arguments linear_arguments(const Layer&, ValueId x, const LayerValues& values) {
  return {
      Argument::of_value(x), Argument::of_value(values.weight),
      Argument::of_value(values.bias)};
}

std::string linear_repr(const Layer& layer) {
  return fmt::format(
      "Linear(in_features={}, out_features={}, bias=True)", layer.in, layer.out);
}

// --- batch_norm

LayerState batch_norm_state(
    const Layer& layer, at::ScalarType dtype, const at::Generator&) {
  return {
      at::ones({layer.out}), at::zeros({layer.out}), at::zeros({layer.out}, dtype),
      at::ones({layer.out}, dtype), at::zeros({}, at::kLong)};
}

Arguments batch_norm_arguments(const Layer&, ValueId x, const LayerValues& values) {
  return {
      Argument::of_value(x),
      Argument::of_value(values.weight),
      Argument::of_value(values.bias),
      Argument::of_value(values.running_mean),
      Argument::of_value(values.running_var),
      Argument::of(true),
      Argument::of(kBatchNormMomentum),
      Argument::of(kBatchNormEpsilon),
      Argument::of(false)};
}

std::string batch_norm_repr(const Layer& layer) {
  return fmt::format(
      "BatchNorm2d({}, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)",
      layer.out);
}

// --- relu

std::string relu_repr(const Layer&) {
  return "ReLU()";
}

// --- max_pool2d

InputShape max_pool2d_output(const Layer& layer, const InputShape& input) {
  return {input.channels, extent(layer, input.height), extent(layer, input.width)};
}

Arguments max_pool2d_arguments(const Layer& layer, ValueId x, const LayerValues&) {
  return {Argument::of_value(x), pair(layer.kernel), pair(layer.stride)};
}

std::string max_pool2d_repr(const Layer& layer) {
  return fmt::format(
      "MaxPool2d(kernel_size={}, stride={}, padding=0, dilation=1, ceil_mode=False)",
      layer.kernel, layer.stride);
}

// --- dropout, dropout2d

Arguments dropout_arguments(const Layer& layer, ValueId x, const LayerValues&) {
  return {Argument::of_value(x), Argument::of(layer.p), Argument::of(true)};
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

Arguments flatten_arguments(const Layer&, ValueId x, const LayerValues&) {
  return {Argument::of_value(x), Argument::of(int64_t{1})};
}

// --- log_softmax

Arguments log_softmax_arguments(const Layer&, ValueId x, const LayerValues&) {
  return {Argument::of_value(x), Argument::of(int64_t{1})};
}

// --- table and factories

constexpr LayerKindRow kLayerRows[] = {
    {LayerKind::conv2d, "aten::conv2d", "", &conv2d_arguments, &conv2d_repr,
     kFusesReluAfter, &conv2d_output, &conv2d_state},
    {LayerKind::linear, "aten::linear", "", &linear_arguments, &linear_repr,
     kFusesReluAfter, &linear_output, &linear_state},
    {LayerKind::batch_norm2d, "aten::batch_norm", "", &batch_norm_arguments,
     &batch_norm_repr, kFusesReluAfter, nullptr, &batch_norm_state},
    {LayerKind::relu, "aten::relu", "", &input_only, &relu_repr},
    {LayerKind::max_pool2d, "aten::max_pool2d", "", &max_pool2d_arguments,
     &max_pool2d_repr, kFusesReluAfter | kFusesReluBefore, &max_pool2d_output},
    {LayerKind::dropout, "aten::dropout", "", &dropout_arguments, &dropout_repr},
    {LayerKind::dropout2d, "aten::feature_dropout", "", &dropout_arguments,
     &dropout2d_repr},
    {LayerKind::flatten, "aten::flatten", "using_ints", &flatten_arguments, nullptr,
     kNoLayerTrait, &flatten_output},
    {LayerKind::log_softmax, "aten::log_softmax", "int", &log_softmax_arguments,
     nullptr},
};
static_assert(std::size(kLayerRows) == kNumLayerKinds);

}  // namespace

Layer conv2d(
    const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t padding) {
  Layer layer{LayerKind::conv2d, name, in, out, kernel};
  layer.padding = padding;
  return layer;
}

Layer linear(const std::string& name, int64_t in, int64_t out) {
  return {LayerKind::linear, name, in, out};
}

Layer batch_norm2d(const std::string& name, int64_t channels) {
  return {LayerKind::batch_norm2d, name, channels, channels};
}

Layer relu() {
  return {LayerKind::relu, ""};
}

Layer max_pool2d(int64_t kernel) {
  Layer layer{LayerKind::max_pool2d, ""};
  layer.kernel = kernel;
  layer.stride = kernel;
  return layer;
}

Layer dropout(double p) {
  Layer layer{LayerKind::dropout, ""};
  layer.p = p;
  return layer;
}

Layer dropout2d(double p) {
  Layer layer{LayerKind::dropout2d, ""};
  layer.p = p;
  return layer;
}

Layer flatten() {
  return {LayerKind::flatten, ""};
}

Layer log_softmax() {
  return {LayerKind::log_softmax, ""};
}

InputShape output_of(const Layer& layer, const InputShape& input) {
  const auto output = row_of(layer).output;
  return output == nullptr ? input : output(layer, input);
}

RoundedValues rounds_of(const Layer& layer) {
  return operator_row(row_of(layer).target).rounds;
}

const LayerKindRow& row_of(const Layer& layer) {
  return row_of_kind(kLayerRows, layer.kind);
}

}  // namespace tandem
