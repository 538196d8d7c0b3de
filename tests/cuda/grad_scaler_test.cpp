// GradScaler's kernels against optim/grad_scaler.h, bit for bit.

#include "tandem/kernels/cuda/grad_scaler.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tandem/optim/grad_scaler.h"
#include "tests/cuda/orders.h"

namespace tandem::grad_scaler_test {

// The state, as exact as it lies on a device.
struct OnDevice {
  explicit OnDevice(double initial) : scale(static_cast<float>(initial)) {}

  cuda::ScalerState state() {
    return {&scale, &growth_tracker, &skipped_steps, &overflowed};
  }

  float scale;
  int64_t growth_tracker = 0;
  int64_t skipped_steps = 0;
  int64_t overflowed = 0;
};

template <typename T>
class ScalerKernels : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ScalerKernels, Types);

TYPED_TEST(ScalerKernels, UnscaleWithTheBitsOfTheCpus) {
  using T = TypeParam;
  constexpr double kOdd = 1234.5;
  GradScalerOptions options;
  options.initial_scale = kOdd;
  const auto dtype = sizeof(T) == 4 ? at::kFloat : at::kDouble;
  in_orders([&] {
    for (const int64_t count : kSizes) {
      for (const double planted :
           {0.0, std::numeric_limits<double>::quiet_NaN(),
            -std::numeric_limits<double>::infinity()}) {
        const auto value = at::empty({count}, dtype).set_requires_grad(true);
        Arena gradients(
            std::make_shared<const ArenaLayout>(
                std::vector<NamedTensor>{{"p", value}}, std::vector<int64_t>(), 1),
            "gradients");
        T* expected = gradients.segment(0).data_ptr<T>();
        for (int64_t i = 0; i < count; ++i) {
          expected[i] = static_cast<T>(1e3 * std::sin(static_cast<double>(i)));
        }
        if (count > 0) {
          expected[count - 1] = static_cast<T>(planted);
        }
        std::vector<T> values(expected, expected + count);
        OnDevice device(kOdd);
        cuda::unscale(count, values.data(), device.state(), nullptr);
        StepScalars step;
        GradScaler(options).unscale(gradients, step);
        EXPECT_EQ(device.overflowed, step.left_out);
        EXPECT_TRUE(same_bits(values, expected));
      }
    }
  });
}

// One gradient, which is not finite at the steps of which `pattern` has a 1.
void expect_same_course(const GradScalerOptions& options, const std::string& pattern) {
  const auto value = at::empty({1}, at::kFloat).set_requires_grad(true);
  Arena gradients(
      std::make_shared<const ArenaLayout>(
          std::vector<NamedTensor>{{"p", value}}, std::vector<int64_t>(), 1),
      "gradients");
  GradScaler scaler(options);
  OnDevice device(options.initial_scale);
  for (size_t i = 0; i < pattern.size(); ++i) {
    SCOPED_TRACE(i);
    float gradient = pattern[i] == '0' ? 1 : std::numeric_limits<float>::infinity();
    *gradients.segment(0).data_ptr<float>() = gradient;
    StepScalars expected;
    expected.step = static_cast<int64_t>(i) + 1;
    StepScalars scalars = expected;
    scaler.unscale(gradients, expected);
    cuda::unscale(1, &gradient, device.state(), nullptr);
    cuda::update_scaler(options, device.state(), &scalars, nullptr);
    EXPECT_EQ(scalars.left_out, expected.left_out);
    EXPECT_EQ(scalars.step, expected.step);
    EXPECT_EQ(device.overflowed, 0);
    EXPECT_EQ(device.scale, scaler.scale());
    EXPECT_EQ(device.skipped_steps, scaler.skipped_steps());
    EXPECT_EQ(device.growth_tracker, *scaler.state().view(1).data_ptr<int64_t>());
  }
}

TEST(ScalerKernel, FollowsTheCpus) {
  GradScalerOptions options;
  options.growth_interval = 3;
  options.growth_factor = 1.7;
  options.backoff_factor = 0.3;
  expect_same_course(options, "000001100000011101000000");
  options.max_scale = 100'000;
  expect_same_course(options, "000000000100000000000");
  options.dynamic = false;
  expect_same_course(options, "0010001");
}

// Below what GradScaler::look() takes for nothing.
TEST(ScalerKernel, ShrinksTheScaleAsFarAsTheCpus) {
  GradScalerOptions options;
  options.initial_scale = 2.5e-38;
  expect_same_course(options, "1111");
}

}  // namespace tandem::grad_scaler_test
