// Clipping's kernels against the norm in float64.

#include "tandem/kernels/cuda/clipping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/cuda/orders.h"

namespace tandem::clipping_test {

template <typename T>
class ClippingKernels : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ClippingKernels, Types);

TYPED_TEST(ClippingKernels, AddUpSquaresInOneOrder) {
  using T = TypeParam;
  for (const int64_t count : {0, 1, 31, 256, 4095, 4096, 4097, 300 * 4096 + 5}) {
    SCOPED_TRACE(count);
    std::vector<T> gradients;
    long double expected = 0;
    for (int64_t i = 0; i < count; ++i) {
      gradients.push_back(static_cast<T>(std::sin(static_cast<double>(i) + 0.3)));
      expected += static_cast<long double>(gradients.back()) * gradients.back();
    }
    std::vector<double> found;
    const auto run = [&] {
      // Onto what another range has left.
      double squares = 2;
      std::vector<double> scratch(
          static_cast<size_t>(cuda::square_sums(count)), -1e300);
      cuda::add_squares(count, gradients.data(), scratch.data(), &squares, nullptr);
      EXPECT_NEAR(squares, static_cast<double>(expected) + 2, 1e-13 * (squares + 2));
      found.push_back(squares);
      EXPECT_EQ(found.back(), found.front());
    };
    if (count < 10'000) {
      in_orders(run);
    } else {
      run();
    }
  }
}

double scale_for(double clip_norm, double squares) {
  StepScalars scalars;
  scalars.gradient_scale = -5;
  cuda::clip_gradients(clip_norm, &squares, &scalars, nullptr);
  EXPECT_EQ(squares, 0);
  return scalars.gradient_scale;
}

// As parallel/update/arena_update.cpp has it.
TEST(Clipping, ScalesDownToTheNorm) {
  EXPECT_EQ(scale_for(2, 100), 2 / (10 + 1e-6));
  EXPECT_EQ(scale_for(10, 100), 10 / (10 + 1e-6));
  EXPECT_EQ(scale_for(10.1, 100), 1);
  EXPECT_EQ(scale_for(1, 0), 1);
  EXPECT_EQ(scale_for(1, std::numeric_limits<double>::infinity()), 0);
  EXPECT_EQ(scale_for(1, std::numeric_limits<double>::quiet_NaN()), 1);
}

}  // namespace tandem::clipping_test
