// Linear layers for GPUs against plain loops, and those against LibTorch, in float64.

#include "tandem/kernels/cuda/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/dropout.h"
#include "tests/core/expect.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/owned_workspace.h"
#include "tests/cuda/values.h"

namespace tandem::linear_test {

using cuda::LinearShape;
using cuda::Products;
using cuda::ReluAndDropout;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// What goes in, and what has to come out.
struct Case {
  Values input;
  Values weight;
  Values bias;
  Values grad_output;
  Values output;
  Values grad_input;
  Values grad_weight;
  Values grad_bias;
};

// Calls body(place in the output, in the input, in the weights) for each product.
template <typename Body>
void for_products(const LinearShape& s, Body&& body) {
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    for (int64_t out = 0; out < s.out; ++out) {
      for (int64_t in = 0; in < s.in; ++in) {
        body(
            static_cast<size_t>(sample * s.out + out),
            static_cast<size_t>(sample * s.in + in),
            static_cast<size_t>(out * s.in + in));
      }
    }
  }
}

// `relu`: behind the layer; its gradient is then 0 where the output is.
template <typename T>
Case make_case(const LinearShape& s, bool relu) {
  std::mt19937 generator(7);
  Case c;
  c.input = random_values<T>(s.samples * s.in, -1, generator);
  c.weight = random_values<T>(s.out * s.in, -1, generator);
  c.bias = random_values<T>(s.out, -1, generator);
  // Not around 0, or its sum could be small beside its roundings.
  c.grad_output = random_values<T>(s.samples * s.out, -0.5, generator);
  const auto outputs = static_cast<size_t>(s.out);
  c.output.resize(c.grad_output.size());
  for (size_t i = 0; i < c.output.size(); ++i) {
    c.output[i] = c.bias[i % outputs];
  }
  for_products(s, [&](size_t at, size_t x, size_t w) {
    c.output[at] += c.input[x] * c.weight[w];
  });
  Values gradient = c.grad_output;
  for (size_t i = 0; i < c.output.size() && relu; ++i) {
    gradient[i] = c.output[i] > 0 ? gradient[i] : 0;
    c.output[i] = std::max(c.output[i], 0.0);
  }
  c.grad_input.resize(c.input.size());
  c.grad_weight.resize(c.weight.size());
  c.grad_bias.resize(c.bias.size());
  for_products(s, [&](size_t at, size_t x, size_t w) {
    c.grad_input[x] += gradient[at] * c.weight[w];
    c.grad_weight[w] += gradient[at] * c.input[x];
  });
  for (size_t i = 0; i < gradient.size(); ++i) {
    c.grad_bias[i % outputs] += gradient[i];
  }
  return c;
}

// What the kernels computed.
template <typename T>
struct Found {
  std::vector<T> output;
  std::vector<T> grad_input;
  std::vector<T> grad_weight;
  std::vector<T> grad_bias;
};

template <typename T>
Found<T> run_kernels(
    const LinearShape& s, Products products, const Case& c,
    const ReluAndDropout& behind) {
  const auto input = as<T>(c.input);
  const auto weight = as<T>(c.weight);
  const auto bias = as<T>(c.bias);
  const auto grad_output = as<T>(c.grad_output);
  const auto output = as<T>(c.output);
  const T* behind_relu = behind.relu ? output.data() : nullptr;
  Found<T> found;
  found.output.assign(c.output.size(), T(7));
  OwnedWorkspace<T> forward(cuda::linear_workspace(s));
  cuda::linear(
      s, products, input.data(), weight.data(), bias.data(), behind, forward.get(),
      found.output.data(), nullptr);
  found.grad_input.assign(c.input.size(), T(7));
  found.grad_weight.assign(c.weight.size(), T(7));
  found.grad_bias.assign(c.bias.size(), T(7));
  OwnedWorkspace<T> backward(cuda::linear_workspace(s));
  cuda::linear_backward<T>(
      s, products, input.data(), weight.data(),
      {grad_output.data(), behind_relu, behind.scale()}, backward.get(),
      {found.grad_weight.data(), found.grad_bias.data(), false},
      found.grad_input.data(), nullptr);
  return found;
}

template <typename T>
void expect_near(const Found<T>& found, const Case& c, double tolerance) {
  expect_values_near(found.output, c.output, tolerance, "output");
  expect_values_near(found.grad_input, c.grad_input, tolerance, "grad_input");
  expect_values_near(found.grad_weight, c.grad_weight, tolerance, "grad_weight");
  expect_values_near(found.grad_bias, c.grad_bias, tolerance, "grad_bias");
}

// Behind a ReLU in every order of threads, with the same bits.
template <typename T>
void expect_linear(const LinearShape& s, Products products, double tolerance) {
  const auto expected = make_case<T>(s, true);
  std::vector<Found<T>> all;
  const auto run = [&] {
    all.push_back(run_kernels<T>(s, products, expected, {true}));
    const auto& found = all.back();
    EXPECT_TRUE(same_bits(found.output, all[0].output.data()));
    EXPECT_TRUE(same_bits(found.grad_input, all[0].grad_input.data()));
    EXPECT_TRUE(same_bits(found.grad_weight, all[0].grad_weight.data()));
    EXPECT_TRUE(same_bits(found.grad_bias, all[0].grad_bias.data()));
  };
  // What is read and written is the same in each order, and the sanitizer slow.
  if (kSanitized) {
    run();
  } else {
    in_orders(run);
    const auto without = make_case<T>(s, false);
    expect_near(run_kernels<T>(s, products, without, {}), without, tolerance);
  }
  expect_near(all[0], expected, tolerance);
}

class LinearLayers : public testing::TestWithParam<LinearShape> {};

std::string name_of_shape(const testing::TestParamInfo<LinearShape>& test) {
  const auto& s = test.param;
  return std::to_string(s.samples) + "_" + std::to_string(s.in) + "_" +
         std::to_string(s.out);
}

// Samples, inputs, outputs: as those of model/zoo.cpp, most of them smaller; then
// ragged ones of both tiles, whole and divided forward (the third and fourth) and
// backward (the seventh), and the least; then in two groups of parts, forward and
// backward.
INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearLayers,
    testing::Values(
        LinearShape{5, 64, 120}, LinearShape{5, 128, 10}, LinearShape{3, 784, 10},
        LinearShape{66, 401, 67}, LinearShape{1, 1, 1}, LinearShape{130, 33, 7},
        LinearShape{2, 70, 259}, LinearShape{3, 1300, 5}, LinearShape{2, 5, 1300}),
    name_of_shape);

// What a layer and a dropout behind its ReLU compute, each in kernels of its own.
template <typename T>
Found<T> run_apart(const LinearShape& s, const Case& c, const ReluAndDropout& behind) {
  auto dropped = as<T>(c.grad_output);
  cuda::apply_dropout<T>(
      behind.place, behind.layer, s.samples, s.out, behind.p, dropped.data(),
      dropped.data(), nullptr);
  Case apart = c;
  apart.grad_output.assign(dropped.begin(), dropped.end());
  auto found = run_kernels<T>(s, Products::full, apart, {true});
  cuda::apply_dropout<T>(
      behind.place, behind.layer, s.samples, s.out, behind.p, found.output.data(),
      found.output.data(), nullptr);
  return found;
}

template <typename T>
void expect_dropout_as_apart(const LinearShape& s) {
  const BatchPlace place{0x123456789abcdef0, 3, 100'000, 7, 0, 1};
  const ReluAndDropout behind{true, &place, 2, 0.3};
  auto c = make_case<T>(s, true);
  const auto apart = run_apart<T>(s, c, behind);
  // What backward gets is what forward writes.
  c.output.assign(apart.output.begin(), apart.output.end());
  const auto together = run_kernels<T>(s, Products::full, c, behind);
  EXPECT_TRUE(same_bits(together.output, apart.output.data()));
  EXPECT_TRUE(same_bits(together.grad_input, apart.grad_input.data()));
  EXPECT_TRUE(same_bits(together.grad_weight, apart.grad_weight.data()));
  EXPECT_TRUE(same_bits(together.grad_bias, apart.grad_bias.data()));
}

TEST_P(LinearLayers, DropoutBehindTheReluHasTheBitsOfAKernelOfItsOwn) {
  expect_dropout_as_apart<float>(GetParam());
  expect_dropout_as_apart<double>(GetParam());
}

TEST_P(LinearLayers, OfFloat64AreThoseOfLoops) {
  expect_linear<double>(GetParam(), Products::full, 1e-12);
}

TEST_P(LinearLayers, OfFloat32AreThoseOfLoops) {
  expect_linear<float>(GetParam(), Products::full, tolerance(Products::full));
}

TEST_P(LinearLayers, OfTf32AreThoseOfLoops) {
  expect_linear<float>(GetParam(), Products::tf32, tolerance(Products::tf32));
}

TEST_P(LinearLayers, OfBf16AreThoseOfLoops) {
  expect_linear<float>(GetParam(), Products::bf16, tolerance(Products::bf16));
}

TEST_P(LinearLayers, OfLoopsAreLibTorchs) {
  const auto s = GetParam();
  const auto c = make_case<double>(s, true);
  const auto leaf = [](const Values& values, at::IntArrayRef sizes) {
    return tensor_of(values, sizes).set_requires_grad(true);
  };
  const auto input = leaf(c.input, {s.samples, s.in});
  const auto weight = leaf(c.weight, {s.out, s.in});
  const auto bias = leaf(c.bias, {s.out});
  const auto output = at::linear(input, weight, bias).relu();
  expect_values_near(values_of(output.detach()), c.output, 1e-12, "output");
  output.backward(tensor_of(c.grad_output, output.sizes()));
  expect_values_near(values_of(input.grad()), c.grad_input, 1e-12, "grad_input");
  expect_values_near(values_of(weight.grad()), c.grad_weight, 1e-12, "grad_weight");
  expect_values_near(values_of(bias.grad()), c.grad_bias, 1e-12, "grad_bias");
}

// Else two blocks would go through all inputs, and the other multiprocessors wait.
TEST(Linear, AFewTilesAreDividedAmongManyBlocks) {
  const auto values = [](const LinearShape& shape) {
    return cuda::linear_workspace(shape).values;
  };
  // Tiles of 4096 sums: parts, and groups of eight of them.
  EXPECT_EQ(values({64, 9216, 128}), 2 * (58 + 8) * 4096);
  EXPECT_EQ(values({64, 784, 10}), (5 + 1) * 4096);
  EXPECT_EQ(values({64, 128, 10}), 0);
  EXPECT_EQ(values({64 * 128, 9216, 128}), 0);
  EXPECT_EQ(values({0, 9216, 128}), 0);
}

constexpr LinearShape kSmall{5, 300, 7};

TEST(Linear, NeedsNoBias) {
  auto expected = make_case<float>(kSmall, false);
  const auto input = as<float>(expected.input);
  const auto weight = as<float>(expected.weight);
  const auto grad_output = as<float>(expected.grad_output);
  OwnedWorkspace<float> workspace(cuda::linear_workspace(kSmall));
  std::vector<float> output(expected.output.size());
  cuda::linear<float>(
      kSmall, Products::full, input.data(), weight.data(), nullptr, {}, workspace.get(),
      output.data(), nullptr);
  for (size_t i = 0; i < output.size(); ++i) {
    expected.output[i] -= expected.bias[i % 7];
  }
  expect_values_near(output, expected.output, 1e-5, "output");
  std::vector<float> grad_weight(weight.size());
  cuda::linear_backward<float>(
      kSmall, Products::full, input.data(), weight.data(), {grad_output.data()}, {},
      {grad_weight.data(), nullptr, false}, nullptr, nullptr);
  expect_values_near(grad_weight, expected.grad_weight, 1e-5, "grad_weight");
}

TEST(Linear, AddsGradientsToWhatIsThere) {
  const auto c = make_case<float>(kSmall, false);
  const auto input = as<float>(c.input);
  const auto grad_output = as<float>(c.grad_output);
  std::vector<float> weight(c.weight.size(), 9);
  std::vector<float> bias(c.bias.size(), 9);
  std::vector<float> once_weight;
  std::vector<float> once_bias;
  for (const bool accumulate : {false, true}) {
    once_weight = weight;
    once_bias = bias;
    cuda::linear_backward<float>(
        kSmall, Products::bf16, input.data(), nullptr, {grad_output.data()}, {},
        {weight.data(), bias.data(), accumulate}, nullptr, nullptr);
  }
  for (size_t i = 0; i < weight.size(); ++i) {
    ASSERT_EQ(weight[i], 2 * once_weight[i]);
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    ASSERT_EQ(bias[i], 2 * once_bias[i]);
  }
}

TEST(Linear, OfNoSamplesHasGradientsOfZero) {
  const LinearShape shape{0, 300, 7};
  std::vector<float> weight(300 * 7, 9);
  std::vector<float> bias(7, 9);
  cuda::linear<float>(
      shape, Products::tf32, nullptr, weight.data(), bias.data(), {true}, {}, nullptr,
      nullptr);
  float grad_input = 9;
  cuda::linear_backward<float>(
      shape, Products::tf32, nullptr, weight.data(), {nullptr}, {},
      {weight.data(), bias.data(), false}, &grad_input, nullptr);
  EXPECT_EQ(grad_input, 9);
  EXPECT_THAT(weight, Each(0));
  EXPECT_THAT(bias, Each(0));
}

// A NaN in one sample is in that sample's outputs, behind a ReLU too, and nowhere else.
TEST(Linear, NansStayWhereTheyBelong) {
  auto c = make_case<float>(kSmall, true);
  c.input[300 + 299] = std::numeric_limits<double>::quiet_NaN();
  for (const auto products : {Products::full, Products::tf32, Products::bf16}) {
    const auto output = run_kernels<float>(kSmall, products, c, {true}).output;
    for (size_t i = 0; i < output.size(); ++i) {
      ASSERT_EQ(std::isnan(output[i]), i / 7 == 1) << i;
    }
  }
}

std::string refusal(const LinearShape& shape) {
  return error_of<ConfigError>([&] { cuda::check_linear(shape); });
}

TEST(Linear, RefusesWhatItCannotCompute) {
  EXPECT_EQ(refusal({64, 9216, 128}), "(no error)");
  EXPECT_THAT(
      refusal({64, 0, 128}), AllOf(HasSubstr("from 0 to 128"), HasSubstr("change")));
  EXPECT_THAT(refusal({64, 9216, 0}), HasSubstr("not possible"));
  EXPECT_THAT(refusal({1 << 20, 1 << 12, 1}), HasSubstr("2^31"));
  EXPECT_THAT(refusal({1 << 20, 1, 1 << 12}), HasSubstr("2^31"));
  EXPECT_THAT(refusal({1, 1 << 20, 1 << 12}), HasSubstr("2^31"));
  EXPECT_THAT(refusal({0, int64_t{1} << 40, 1}), HasSubstr("2^21"));
  EXPECT_THAT(refusal({1, 1 << 21, 1}), HasSubstr("2^21"));
  EXPECT_THAT(refusal({1, 1, 1 << 21}), HasSubstr("2^21"));
  EXPECT_EQ(refusal({1, (1 << 21) - 1, 1}), "(no error)");
}

TEST(Linear, RefusesProductsThatTheGpuOrTheTypeDoesNotHave) {
  const auto forward = [](auto zero, Products products, int architecture) {
    using T = decltype(zero);
    emulator::code_architecture = architecture;
    const auto c = make_case<T>(kSmall, true);
    const auto error =
        error_of<ConfigError>([&] { run_kernels<T>(kSmall, products, c, {true}); });
    emulator::code_architecture = 90;
    return error;
  };
  EXPECT_THAT(
      forward(0.0f, Products::tf32, 75),
      AllOf(HasSubstr("kernel linear"), HasSubstr("need 8.0")));
  EXPECT_EQ(forward(0.0f, Products::full, 75), "(no error)");
  EXPECT_THAT(forward(0.0, Products::bf16, 90), HasSubstr("values are float64"));
}

}  // namespace tandem::linear_test
