// Batch norm for GPUs against LibTorch's in float64.

#include "tandem/kernels/cuda/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/values.h"

namespace tandem::batch_norm_test {

using cuda::BatchNormShape;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;

// What goes in.
struct Inputs {
  Values in;
  Values weight;
  Values bias;
  Values running_mean;
  Values running_variance;
  Values grad_out;
};

// A channel's mean is as many times its deviation as `mean` says.
template <typename T>
Inputs inputs_of(const BatchNormShape& s, double mean = 0.5) {
  std::mt19937 generator(5);
  Inputs inputs;
  inputs.in = random_values<T>(s.values() * s.channels, -1, generator);
  const auto area = static_cast<size_t>(s.area);
  for (size_t i = 0; i < inputs.in.size(); ++i) {
    const auto channel = static_cast<double>(i / area % s.channels);
    inputs.in[i] = static_cast<T>(inputs.in[i] + mean + channel);
  }
  inputs.weight = random_values<T>(s.channels, 0.25, generator);
  inputs.bias = random_values<T>(s.channels, -1, generator);
  inputs.running_mean = random_values<T>(s.channels, -1, generator);
  inputs.running_variance = random_values<T>(s.channels, 0.25, generator);
  inputs.grad_out = random_values<T>(s.values() * s.channels, -0.5, generator);
  return inputs;
}

template <typename T>
struct Outputs {
  std::vector<T> out;
  std::vector<T> running_mean;
  std::vector<T> running_variance;
  std::vector<T> evaluated;
  std::vector<T> grad_in;
  std::vector<T> grad_weight;
  std::vector<T> grad_bias;
};

Outputs<double> of_libtorch(const BatchNormShape& s, const Inputs& inputs, bool relu) {
  const std::vector<int64_t> sizes{s.images, s.channels, s.area, 1};
  const auto of_channels = [&](const Values& values) {
    return tensor_of(values, {s.channels});
  };
  const auto in = tensor_of(inputs.in, sizes).set_requires_grad(true);
  const auto weight = of_channels(inputs.weight).set_requires_grad(true);
  const auto bias = of_channels(inputs.bias).set_requires_grad(true);
  const auto mean = of_channels(inputs.running_mean);
  const auto variance = of_channels(inputs.running_variance);
  const auto forward = [&](bool training) {
    const auto out = at::batch_norm(
        in, weight, bias, mean, variance, training, kMomentum, kEpsilon, false);
    return relu ? out.relu() : out;
  };
  const auto evaluated = forward(false).detach();
  const auto out = forward(true);
  out.backward(tensor_of(inputs.grad_out, sizes));
  return {values_of(out.detach()), values_of(mean),      values_of(variance),
          values_of(evaluated),    values_of(in.grad()), values_of(weight.grad()),
          values_of(bias.grad())};
}

template <typename T>
Outputs<T> of_kernels(const BatchNormShape& s, const Inputs& inputs, bool relu) {
  const auto in = as<T>(inputs.in);
  const auto weight = as<T>(inputs.weight);
  const auto bias = as<T>(inputs.bias);
  const auto grad_out = as<T>(inputs.grad_out);
  const cuda::BatchNormParameters<T> parameters{
      weight.data(), bias.data(), kEpsilon, relu};
  Outputs<T> found;
  found.running_mean = as<T>(inputs.running_mean);
  found.running_variance = as<T>(inputs.running_variance);
  found.evaluated.assign(in.size(), T(7));
  cuda::batch_norm_evaluation(
      s, parameters, in.data(), found.running_mean.data(),
      found.running_variance.data(), found.evaluated.data(), nullptr);
  const auto no_number = std::numeric_limits<double>::quiet_NaN();
  const auto workspace_size = static_cast<size_t>(cuda::batch_norm_workspace(s));
  Values workspace(workspace_size, no_number);
  Values saved(2 * weight.size(), no_number);
  found.out.assign(in.size(), T(7));
  int64_t batches = 4;
  cuda::batch_norm(
      s, parameters, in.data(),
      {found.running_mean.data(), found.running_variance.data(), &batches, kMomentum},
      workspace.data(), saved.data(), found.out.data(), nullptr);
  EXPECT_EQ(batches, 5);
  workspace.assign(workspace_size, no_number);
  found.grad_in.assign(in.size(), T(7));
  found.grad_weight.assign(weight.size(), T(7));
  found.grad_bias.assign(weight.size(), T(7));
  cuda::batch_norm_backward(
      s, weight.data(), in.data(), saved.data(), grad_out.data(),
      relu ? found.out.data() : nullptr, workspace.data(),
      {found.grad_in.data(), found.grad_weight.data(), found.grad_bias.data(), false},
      nullptr);
  return found;
}

// Calls body(values, name) for each of the outputs.
template <typename T, typename Body>
void for_each_output(const Outputs<T>& outputs, Body&& body) {
  body(outputs.out, "out");
  body(outputs.running_mean, "running_mean");
  body(outputs.running_variance, "running_variance");
  body(outputs.evaluated, "evaluated");
  body(outputs.grad_in, "grad_in");
  body(outputs.grad_weight, "grad_weight");
  body(outputs.grad_bias, "grad_bias");
}

template <typename T>
std::vector<std::vector<T>> list_of(const Outputs<T>& outputs) {
  std::vector<std::vector<T>> list;
  for_each_output(
      outputs, [&](const auto& values, const char*) { list.push_back(values); });
  return list;
}

template <typename T>
void expect_outputs(
    const Outputs<T>& found, const Outputs<double>& expected, double tolerance) {
  const auto all = list_of(found);
  size_t next = 0;
  for_each_output(expected, [&](const Values& values, const char* name) {
    expect_values_near(all[next++], values, tolerance, name);
  });
}

template <typename T>
class BatchNormKernels : public testing::Test {
 protected:
  static constexpr double kTolerance = sizeof(T) == 4 ? 1e-5 : 1e-12;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(BatchNormKernels, Types);

// In several parts of a channel, in one, and with no more than two values.
TYPED_TEST(BatchNormKernels, HaveLibTorchsValuesInEachOrderOfThreads) {
  using T = TypeParam;
  for (const BatchNormShape& s :
       {BatchNormShape{3, 2, 1500}, BatchNormShape{64, 3, 35}, BatchNormShape{5, 9, 7},
        BatchNormShape{1, 1, 2}, BatchNormShape{2, 5, 1}}) {
    for (const bool relu : {false, true}) {
      SCOPED_TRACE(std::to_string(s.values()) + (relu ? " with ReLU" : ""));
      const auto inputs = inputs_of<T>(s);
      const auto expected = of_libtorch(s, inputs, relu);
      std::vector<std::vector<std::vector<T>>> all;
      in_orders([&] {
        const auto found = of_kernels<T>(s, inputs, relu);
        // Two values leave no gradient but roundings.
        if (s.values() > 2) {
          expect_outputs(found, expected, this->kTolerance);
        } else {
          expect_values_near(found.out, expected.out, this->kTolerance, "out");
        }
        all.push_back(list_of(found));
        EXPECT_TRUE(all.back() == all[0]);
      });
    }
  }
}

// A sum of squares less the square of the sum would keep none of a float64's digits.
TYPED_TEST(BatchNormKernels, ALargeMeanCostsNoDigits) {
  using T = TypeParam;
  const BatchNormShape s{4, 2, 700};
  const auto inputs = inputs_of<T>(s, sizeof(T) == 4 ? 1e4 : 1e7);
  const auto found = of_kernels<T>(s, inputs, false);
  const auto expected = of_libtorch(s, inputs, false);
  expect_values_near(found.out, expected.out, 1e-6, "out");
  expect_values_near(found.grad_in, expected.grad_in, 1e-6, "grad_in");
  expect_values_near(
      found.running_variance, expected.running_variance, 1e-6, "running_variance");
}

TYPED_TEST(BatchNormKernels, AddGradientsToWhatIsThere) {
  using T = TypeParam;
  const BatchNormShape s{3, 2, 5};
  const auto inputs = inputs_of<T>(s);
  const auto in = as<T>(inputs.in);
  const auto weight = as<T>(inputs.weight);
  const auto grad_out = as<T>(inputs.grad_out);
  const Values saved{0.5, 1.25, 1.5, 0.75};
  Values workspace(static_cast<size_t>(cuda::batch_norm_workspace(s)));
  std::vector<T> grad_weight(2, 9);
  std::vector<T> grad_bias(2, 9);
  std::vector<T> once_weight;
  std::vector<T> once_bias;
  for (const bool accumulate : {false, true}) {
    once_weight = grad_weight;
    once_bias = grad_bias;
    cuda::batch_norm_backward<T>(
        s, weight.data(), in.data(), saved.data(), grad_out.data(), nullptr,
        workspace.data(), {nullptr, grad_weight.data(), grad_bias.data(), accumulate},
        nullptr);
  }
  EXPECT_THAT(grad_weight, ElementsAre(2 * once_weight[0], 2 * once_weight[1]));
  EXPECT_THAT(grad_bias, ElementsAre(2 * once_bias[0], 2 * once_bias[1]));
}

TEST(BatchNorm, OfNoImagesMovesNothingAndHasGradientsOfZero) {
  const BatchNormShape s{0, 2, 5};
  const std::vector<float> weight{1, 2};
  std::vector<float> mean{3, 4};
  std::vector<float> variance{5, 6};
  int64_t batches = 7;
  cuda::batch_norm<float>(
      s, {weight.data(), weight.data()}, nullptr,
      {mean.data(), variance.data(), &batches}, nullptr, nullptr, nullptr, nullptr);
  EXPECT_THAT(mean, ElementsAre(3, 4));
  EXPECT_THAT(variance, ElementsAre(5, 6));
  EXPECT_EQ(batches, 8);
  std::vector<float> grad_weight(2, 9);
  std::vector<float> grad_bias(2, 9);
  cuda::batch_norm_backward<float>(
      s, weight.data(), nullptr, nullptr, nullptr, nullptr, nullptr,
      {nullptr, grad_weight.data(), grad_bias.data()}, nullptr);
  EXPECT_THAT(grad_weight, Each(0));
  EXPECT_THAT(grad_bias, Each(0));
}

TEST(BatchNorm, RefusesWhatItCannotCompute) {
  const auto refusal = [](const BatchNormShape& shape) {
    return error_of<ConfigError>([&] { cuda::check_batch_norm(shape); });
  };
  EXPECT_EQ(refusal({64, 16, 784}), "(no error)");
  EXPECT_THAT(refusal({64, 0, 784}), HasSubstr("0 channels"));
  EXPECT_THAT(refusal({64, 16, 0}), HasSubstr("not possible"));
  EXPECT_THAT(refusal({1, 1 << 16, 1}), HasSubstr("2^16"));
  EXPECT_THAT(refusal({1 << 11, 1 << 10, 1 << 10}), HasSubstr("2^31"));
}

}  // namespace tandem::batch_norm_test
