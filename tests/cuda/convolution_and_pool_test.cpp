// A convolution with what is behind it in one kernel against kernels one after the
// other, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/convolution.h"
#include "tandem/kernels/cuda/pool.h"
#include "tests/core/expect.h"
#include "tests/cuda/orders.h"

namespace tandem::convolution_and_pool_test {

using cuda::ConvolutionShape;
using cuda::PoolShape;
using cuda::Products;
using cuda::ReluAndDropout;
using testing::HasSubstr;

const BatchPlace kPlace{0x123456789abcdef0, 3, 100'000, 7, 0, 1};

PoolShape pool_of(const ConvolutionShape& s) {
  return {s.images, s.out_channels, s.out_height(), s.out_width()};
}

// Few different values, so that a window's largest is often not alone.
template <typename T>
std::vector<T> coarse(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    value = static_cast<T>(static_cast<int>(generator() % 5) - 2) / T(2);
  }
  return values;
}

template <typename T>
struct Found {
  std::vector<T> output;
  std::vector<T> grad_images;
};

// What both begin with.
template <typename T>
struct Given {
  explicit Given(const ConvolutionShape& s)
      : input(coarse<T>(s.images * s.in_channels * s.height * s.width, 1)),
        weight(coarse<T>(s.out_channels * s.in_channels * s.kernel * s.kernel, 2)),
        bias(coarse<T>(s.out_channels, 3)),
        grad_output(coarse<T>(s.images * pool_of(s).outputs(), 4)) {}

  std::vector<T> input;
  std::vector<T> weight;
  std::vector<T> bias;
  std::vector<T> grad_output;
};

template <typename T>
std::vector<T> sevens(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count), T(7));
}

template <typename T>
Found<T> apart(
    const ConvolutionShape& s, Products products, const Given<T>& given,
    const ReluAndDropout& behind) {
  const PoolShape pool = pool_of(s);
  auto images = sevens<T>(s.images * s.out_channels * s.out_height() * s.out_width());
  Found<T> found{sevens<T>(s.images * pool.outputs()), images};
  cuda::convolution(
      s, products, given.input.data(), given.weight.data(), given.bias.data(), false,
      images.data(), nullptr);
  cuda::max_pool(pool, behind, images.data(), found.output.data(), nullptr);
  cuda::max_pool_backward(
      pool, behind, images.data(), given.grad_output.data(), found.grad_images.data(),
      nullptr);
  return found;
}

template <typename T>
Found<T> together(
    const ConvolutionShape& s, Products products, const Given<T>& given,
    const ReluAndDropout& behind) {
  const PoolShape pool = pool_of(s);
  Found<T> found{
      sevens<T>(s.images * pool.outputs()),
      sevens<T>(s.images * s.out_channels * s.out_height() * s.out_width())};
  std::vector<uint8_t> largest(found.output.size(), 9);
  cuda::convolution_and_pool(
      s, products, given.input.data(), given.weight.data(), given.bias.data(), behind,
      found.output.data(), largest.data(), nullptr);
  cuda::max_pool_backward(
      pool, largest.data(), behind.scale(), given.grad_output.data(),
      found.grad_images.data(), nullptr);
  return found;
}

template <typename T>
void expect_as_apart(const ConvolutionShape& s, Products products) {
  const Given<T> given(s);
  for (const bool relu : {false, true}) {
    for (const double p : {-1.0, 0.25}) {
      SCOPED_TRACE(std::string(relu ? "relu, p " : "p ") + std::to_string(p));
      const ReluAndDropout behind{relu, p < 0 ? nullptr : &kPlace, 5, p < 0 ? 0 : p};
      const auto expected = apart(s, products, given, behind);
      in_orders([&] {
        const auto found = together(s, products, given, behind);
        EXPECT_TRUE(same_bits(found.output, expected.output.data()));
        // A gradient that is lost may be -0 there.
        EXPECT_EQ(found.grad_images, expected.grad_images);
      });
    }
  }
}

class ConvolutionsWithPools : public testing::TestWithParam<ConvolutionShape> {};

// images, channels in and out, height, width, kernel, padding: both tiles; images whose
// last row, column or both are in no window; more than one tile of either.
INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvolutionsWithPools,
    testing::Values(
        ConvolutionShape{2, 1, 8, 14, 14, 3, 0}, ConvolutionShape{3, 3, 40, 7, 9, 3, 0},
        ConvolutionShape{1, 2, 70, 8, 9, 5, 2}, ConvolutionShape{5, 2, 3, 6, 5, 2, 1},
        ConvolutionShape{2, 4, 5, 4, 4, 3, 0}),
    [](const auto& test) {
      const auto& s = test.param;
      return std::to_string(s.images) + "_" + std::to_string(s.out_channels) + "_" +
             std::to_string(s.out_height()) + "_" + std::to_string(s.out_width());
    });

TEST_P(ConvolutionsWithPools, HaveTheBitsOfOneAfterTheOther) {
  expect_as_apart<float>(GetParam(), Products::full);
  expect_as_apart<double>(GetParam(), Products::full);
}

TEST_P(ConvolutionsWithPools, HaveThemOfTensorCoresToo) {
  expect_as_apart<float>(GetParam(), Products::tf32);
  expect_as_apart<float>(GetParam(), Products::bf16);
}

TEST(ConvolutionAndPool, NeedsNoBiasAndNoNumbers) {
  const ConvolutionShape shape{1, 1, 1, 2, 2, 1, 0};
  const std::vector<float> input{1, 3, -5, 2};
  const float weight = 2;
  float output = 0;
  cuda::convolution_and_pool<float>(
      shape, Products::full, input.data(), &weight, nullptr, {}, &output, nullptr,
      nullptr);
  EXPECT_EQ(output, 6);
}

TEST(ConvolutionAndPool, PassesOnNans) {
  const ConvolutionShape shape{1, 1, 1, 2, 2, 1, 0};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float weight = 1;
  for (unsigned place = 0; place < 4; ++place) {
    std::vector<float> input{1, 2, 3, 4};
    input[place] = nan;
    float output = 0;
    uint8_t largest = 9;
    cuda::convolution_and_pool<float>(
        shape, Products::full, input.data(), &weight, nullptr, {true}, &output,
        &largest, nullptr);
    EXPECT_TRUE(std::isnan(output));
    EXPECT_EQ(largest, place);
  }
}

TEST(ConvolutionAndPool, RefusesOutputsWithoutAWindow) {
  EXPECT_THAT(
      error_of<ConfigError>([] {
        cuda::convolution_and_pool<float>(
            {1, 1, 1, 3, 4, 3, 0}, Products::full, nullptr, nullptr, nullptr, {},
            nullptr, nullptr, nullptr);
      }),
      HasSubstr("images of 1x1x2"));
}

}  // namespace tandem::convolution_and_pool_test
