#include "tandem/core/step_sums.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace tandem::step_sums_test {

TEST(StepSums, AreZeroWithoutBatches) {
  const StepSums none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.values().samples, 0);
  EXPECT_EQ(none.values().mean_loss(), 0);
  EXPECT_TRUE(none.tensor().equal(at::tensor({0.0, 0.0, 0.0}, at::kDouble)));
}

TEST(StepSums, AddLossMetricAndSamples) {
  StepSums sums;
  sums += StepSums(6, 3, 4);
  sums += StepSums();
  sums += StepSums(at::tensor({1.0, 1.0, 4.0}, at::kDouble));
  const auto values = sums.values();
  EXPECT_EQ(values.loss, 7);
  EXPECT_EQ(values.metric, 4);
  EXPECT_EQ(values.samples, 8);
  EXPECT_EQ(values.mean_loss(), 0.875);
}

TEST(StepSums, CopiesAreIndependent) {
  StepSums first(1, 1, 1);
  StepSums second;
  second += first;
  const StepSums third = second;
  second += first;
  EXPECT_EQ(first.values().loss, 1);
  EXPECT_EQ(second.values().loss, 2);
  EXPECT_EQ(third.values().loss, 1);
}

}  // namespace tandem::step_sums_test
