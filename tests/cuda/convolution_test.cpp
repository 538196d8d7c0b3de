// Convolutions for GPUs against plain loops, and those against LibTorch, in float64.

#include "tandem/kernels/cuda/convolution.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/window.h"
#include "tests/core/expect.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/owned_workspace.h"
#include "tests/cuda/values.h"

namespace tandem::convolution_test {

using cuda::ConvolutionShape;
using cuda::Products;
using testing::AllOf;
using testing::HasSubstr;

int64_t positions(const ConvolutionShape& s) {
  return s.images * s.out_height() * s.out_width();
}
int64_t taps(const ConvolutionShape& s) {
  return s.in_channels * s.kernel * s.kernel;
}

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

// Calls body(position of the output, of the input, of the weight) for each product.
template <typename Body>
void for_products(const ConvolutionShape& s, Body&& body) {
  for (int64_t at = 0; at < positions(s) * s.out_channels; ++at) {
    const int64_t column = at % s.out_width();
    const int64_t row = at / s.out_width() % s.out_height();
    const int64_t out = at / s.out_width() / s.out_height() % s.out_channels;
    const int64_t image = at / s.out_width() / s.out_height() / s.out_channels;
    for (int64_t tap = 0; tap < taps(s); ++tap) {
      const int64_t y = row + tap / s.kernel % s.kernel - s.padding;
      const int64_t x = column + tap % s.kernel - s.padding;
      const int64_t in = tap / s.kernel / s.kernel;
      if (y >= 0 && y < s.height && x >= 0 && x < s.width) {
        body(
            static_cast<size_t>(at),
            static_cast<size_t>(
                ((image * s.in_channels + in) * s.height + y) * s.width + x),
            static_cast<size_t>(out * taps(s) + tap));
      }
    }
  }
}

// `relu`: behind the convolution; its gradient is then 0 where the output is.
template <typename T>
Case make_case(const ConvolutionShape& s, bool relu) {
  std::mt19937 generator(11);
  Case c;
  c.input =
      random_values<T>(s.images * s.in_channels * s.height * s.width, -1, generator);
  c.weight = random_values<T>(s.out_channels * taps(s), -1, generator);
  c.bias = random_values<T>(s.out_channels, -1, generator);
  // Not around 0, or its sum could be small beside its roundings.
  c.grad_output = random_values<T>(positions(s) * s.out_channels, -0.5, generator);
  const auto area = static_cast<size_t>(s.out_height() * s.out_width());
  const auto channel = [&](size_t at) {
    return at / area % static_cast<size_t>(s.out_channels);
  };
  c.output.resize(c.grad_output.size());
  for (size_t i = 0; i < c.output.size(); ++i) {
    c.output[i] = c.bias[channel(i)];
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
    c.grad_bias[channel(i)] += gradient[i];
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
    const ConvolutionShape& s, Products products, const Case& c, bool relu) {
  const auto input = as<T>(c.input);
  const auto weight = as<T>(c.weight);
  const auto bias = as<T>(c.bias);
  const auto grad_output = as<T>(c.grad_output);
  const auto output = as<T>(c.output);
  const T* behind_relu = relu ? output.data() : nullptr;
  Found<T> found;
  found.output.assign(c.output.size(), T(7));
  cuda::convolution(
      s, products, input.data(), weight.data(), bias.data(), relu, found.output.data(),
      nullptr);
  found.grad_input.assign(c.input.size(), T(7));
  found.grad_weight.assign(c.weight.size(), T(7));
  found.grad_bias.assign(c.bias.size(), T(7));
  OwnedWorkspace<T> workspace(cuda::convolution_workspace(s));
  cuda::convolution_backward(
      s, products, input.data(), weight.data(), grad_output.data(), behind_relu,
      workspace.get(), {found.grad_weight.data(), found.grad_bias.data(), false},
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
void expect_convolutions(
    const ConvolutionShape& s, Products products, double tolerance) {
  const auto expected = make_case<T>(s, true);
  std::vector<Found<T>> all;
  const auto run = [&] {
    all.push_back(run_kernels<T>(s, products, expected, true));
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
    expect_near(run_kernels<T>(s, products, without, false), without, tolerance);
  }
  expect_near(all[0], expected, tolerance);
}

class Convolutions : public testing::TestWithParam<ConvolutionShape> {};

std::string name_of_shape(const testing::TestParamInfo<ConvolutionShape>& test) {
  const auto& s = test.param;
  std::string name = std::to_string(s.images);
  for (const int64_t size :
       {s.in_channels, s.out_channels, s.height, s.width, s.kernel, s.padding}) {
    name += "_" + std::to_string(size);
  }
  return name;
}

// images, channels in and out, height, width, kernel, padding. First those of
// model/zoo.cpp, of one image and most of them smaller; then odd ones.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Convolutions,
    testing::Values(
        ConvolutionShape{1, 1, 32, 28, 28, 3, 0},
        ConvolutionShape{1, 32, 64, 11, 11, 3, 0},
        ConvolutionShape{1, 16, 32, 11, 11, 3, 0},
        ConvolutionShape{1, 1, 8, 14, 14, 5, 0},
        ConvolutionShape{1, 8, 16, 12, 12, 5, 0},
        ConvolutionShape{1, 1, 16, 14, 14, 5, 2},
        ConvolutionShape{1, 16, 32, 7, 7, 5, 2}, ConvolutionShape{5, 1, 1, 7, 9, 1, 0},
        ConvolutionShape{5, 1, 3, 7, 9, 1, 2}, ConvolutionShape{5, 3, 5, 7, 9, 3, 1},
        ConvolutionShape{5, 2, 33, 7, 9, 5, 2}, ConvolutionShape{5, 3, 5, 7, 9, 5, 0},
        ConvolutionShape{3, 5, 70, 9, 7, 2, 1}, ConvolutionShape{1, 40, 8, 5, 6, 4, 2},
        ConvolutionShape{5, 1, 1, 7, 9, 3, 2}, ConvolutionShape{1, 1, 1, 5, 5, 5, 0},
        ConvolutionShape{2, 70, 3, 1, 2, 1, 1},
        // 11 parts of the weights' gradient, so two groups of them.
        ConvolutionShape{9, 1, 3, 24, 24, 3, 1}),
    name_of_shape);

TEST_P(Convolutions, OfFloat64AreThoseOfLoops) {
  expect_convolutions<double>(GetParam(), Products::full, 1e-12);
}

TEST_P(Convolutions, OfFloat32AreThoseOfLoops) {
  expect_convolutions<float>(GetParam(), Products::full, tolerance(Products::full));
}

TEST_P(Convolutions, OfTf32AreThoseOfLoops) {
  expect_convolutions<float>(GetParam(), Products::tf32, tolerance(Products::tf32));
}

TEST_P(Convolutions, OfBf16AreThoseOfLoops) {
  expect_convolutions<float>(GetParam(), Products::bf16, tolerance(Products::bf16));
}

TEST_P(Convolutions, OfLoopsAreLibTorchs) {
  const auto s = GetParam();
  const auto c = make_case<double>(s, true);
  const auto input = tensor_of(c.input, {s.images, s.in_channels, s.height, s.width});
  const auto weight =
      tensor_of(c.weight, {s.out_channels, s.in_channels, s.kernel, s.kernel});
  const auto output =
      at::conv2d(input, weight, tensor_of(c.bias, {s.out_channels}), 1, s.padding)
          .relu();
  expect_values_near(values_of(output), c.output, 1e-12, "output");
  const auto gradient =
      tensor_of(c.grad_output, output.sizes()) * (output > 0).to(at::kDouble);
  const auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
      gradient, input, weight, at::IntArrayRef{s.out_channels}, {1, 1},
      {s.padding, s.padding}, {1, 1}, false, {0, 0}, 1, {true, true, true});
  expect_values_near(values_of(grad_input), c.grad_input, 1e-12, "grad_input");
  expect_values_near(values_of(grad_weight), c.grad_weight, 1e-12, "grad_weight");
  expect_values_near(values_of(grad_bias), c.grad_bias, 1e-12, "grad_bias");
}

constexpr ConvolutionShape kSmall{2, 3, 5, 6, 7, 3, 1};

TEST(Convolution, NeedsNoBias) {
  auto expected = make_case<float>(kSmall, false);
  const auto input = as<float>(expected.input);
  const auto weight = as<float>(expected.weight);
  const auto grad_output = as<float>(expected.grad_output);
  std::vector<float> output(expected.output.size());
  cuda::convolution<float>(
      kSmall, Products::full, input.data(), weight.data(), nullptr, false,
      output.data(), nullptr);
  const auto area = static_cast<size_t>(kSmall.out_height() * kSmall.out_width());
  for (size_t i = 0; i < output.size(); ++i) {
    expected.output[i] -= expected.bias[i / area % 5];
  }
  expect_values_near(output, expected.output, 1e-5, "output");
  OwnedWorkspace<float> workspace(cuda::convolution_workspace(kSmall));
  std::vector<float> grad_weight(weight.size());
  cuda::convolution_backward<float>(
      kSmall, Products::full, input.data(), weight.data(), grad_output.data(), nullptr,
      workspace.get(), {grad_weight.data(), nullptr, false}, nullptr, nullptr);
  expect_values_near(grad_weight, expected.grad_weight, 1e-5, "grad_weight");
}

TEST(Convolution, AddsGradientsToWhatIsThere) {
  const auto c = make_case<float>(kSmall, false);
  const auto input = as<float>(c.input);
  const auto grad_output = as<float>(c.grad_output);
  OwnedWorkspace<float> workspace(cuda::convolution_workspace(kSmall));
  std::vector<float> weight(c.weight.size(), 9);
  std::vector<float> bias(c.bias.size(), 9);
  std::vector<float> once_weight;
  std::vector<float> once_bias;
  for (const bool accumulate : {false, true}) {
    once_weight = weight;
    once_bias = bias;
    cuda::convolution_backward<float>(
        kSmall, Products::bf16, input.data(), nullptr, grad_output.data(), nullptr,
        workspace.get(), {weight.data(), bias.data(), accumulate}, nullptr, nullptr);
  }
  for (size_t i = 0; i < weight.size(); ++i) {
    ASSERT_EQ(weight[i], 2 * once_weight[i]);
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    ASSERT_EQ(bias[i], 2 * once_bias[i]);
  }
}

TEST(Convolution, OfNoImagesHasGradientsOfZero) {
  auto shape = kSmall;
  shape.images = 0;
  OwnedWorkspace<float> workspace(cuda::convolution_workspace(shape));
  std::vector<float> weight(5 * 27, 9);
  std::vector<float> bias(5, 9);
  cuda::convolution<float>(
      shape, Products::tf32, nullptr, weight.data(), bias.data(), true, nullptr,
      nullptr);
  float grad_input = 9;
  cuda::convolution_backward<float>(
      shape, Products::tf32, nullptr, nullptr, nullptr, nullptr, workspace.get(),
      {weight.data(), bias.data(), false}, &grad_input, nullptr);
  EXPECT_EQ(grad_input, 9);
  EXPECT_THAT(weight, testing::Each(0));
  EXPECT_THAT(bias, testing::Each(0));
}

// A NaN in one image is in that image's outputs around it, and nowhere else.
TEST(Convolution, NansStayWhereTheyBelong) {
  auto c = make_case<float>(kSmall, true);
  const auto area = static_cast<size_t>(kSmall.height * kSmall.width);
  // The last value of the first image.
  c.input[3 * area - 1] = std::numeric_limits<double>::quiet_NaN();
  for (const auto products : {Products::full, Products::tf32, Products::bf16}) {
    const auto output = run_kernels<float>(kSmall, products, c, true).output;
    for (size_t i = 0; i < output.size(); ++i) {
      const size_t row = i / 7 % 6;
      const size_t column = i % 7;
      const bool near = i < output.size() / 2 && row >= 4 && column >= 5;
      ASSERT_EQ(std::isnan(output[i]), near) << i;
    }
  }
}

TEST(Convolution, NumbersOfTapsAreDividedExactly) {
  for (const uint32_t by : {1, 2, 3, 4, 5, 9, 16, 25}) {
    const auto divisor = cuda::divisor_of(by);
    for (uint32_t number = 0; number < 1 << 25; number += number < 1000 ? 1 : 9973) {
      for (const uint32_t of : {number, number / by * by, number / by * by + by - 1}) {
        ASSERT_EQ(divisor.quotient(of), of / by) << of << " / " << by;
      }
    }
  }
}

std::string refusal(const ConvolutionShape& shape) {
  return error_of<ConfigError>([&] { cuda::check_convolution(shape); });
}

TEST(Convolution, RefusesWhatItCannotCompute) {
  EXPECT_EQ(refusal({64, 1, 32, 28, 28, 3, 0}), "(no error)");
  EXPECT_THAT(
      refusal({64, 1, 32, 28, 28, 6, 0}),
      AllOf(HasSubstr("a kernel of 6"), HasSubstr("kernels are 1 to 5")));
  EXPECT_THAT(refusal({64, 1, 32, 28, 28, 3, 3}), HasSubstr("a padding of 3"));
  EXPECT_THAT(refusal({64, 1, 32, 4, 28, 5, 0}), HasSubstr("1x4x28"));
  EXPECT_THAT(refusal({64, 0, 32, 28, 28, 3, 0}), HasSubstr("not possible"));
  EXPECT_THAT(refusal({1 << 20, 1, 1, 64, 64, 3, 0}), HasSubstr("2^31"));
  EXPECT_THAT(refusal({1, 1 << 20, 1, 64, 64, 3, 0}), HasSubstr("2^31"));
  EXPECT_THAT(refusal({1, 1 << 15, 1 << 15, 8, 8, 3, 0}), HasSubstr("2^31"));
  // Few weights, but more of one channel than can be numbered.
  EXPECT_THAT(refusal({1, 1 << 22, 1, 1, 1, 3, 1}), HasSubstr("2^25"));
  EXPECT_THAT(refusal({1, 1, 1 << 22, 1, 1, 3, 1}), HasSubstr("2^25"));
  EXPECT_EQ(refusal({1, 1 << 21, 1, 1, 1, 3, 1}), "(no error)");
}

TEST(Convolution, RefusesProductsThatTheGpuOrTheTypeDoesNotHave) {
  const auto forward = [](auto zero, Products products, int architecture) {
    using T = decltype(zero);
    emulator::code_architecture = architecture;
    const auto c = make_case<T>(kSmall, true);
    const auto error =
        error_of<ConfigError>([&] { run_kernels<T>(kSmall, products, c, true); });
    emulator::code_architecture = 90;
    return error;
  };
  EXPECT_THAT(
      forward(0.0f, Products::tf32, 75),
      AllOf(HasSubstr("kernel convolution"), HasSubstr("7.5"), HasSubstr("need 8.0")));
  EXPECT_THAT(forward(0.0f, Products::bf16, 75), HasSubstr("need 8.0"));
  EXPECT_EQ(forward(0.0f, Products::full, 75), "(no error)");
  EXPECT_EQ(forward(0.0f, Products::bf16, 80), "(no error)");
  EXPECT_THAT(forward(0.0, Products::bf16, 90), HasSubstr("values are float64"));
}

}  // namespace tandem::convolution_test
