#include "tandem/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::loss_test {

using testing::AllOf;
using testing::HasSubstr;

at::Tensor outputs() {
  return at::tensor({1.0, -2.0, 0.5, 0.0, 3.0, -1.0, 2.0, 2.0, -4.0}, at::kDouble)
      .view({3, 3});
}

at::Tensor classes() {
  return at::tensor({2, 1, 0}, at::kLong);
}

// Figures from torch.nn.functional with reduction="sum".
TEST(Loss, SumsEqualPython) {
  const auto x = outputs();
  const auto targets = at::eye(3, at::kDouble) * 2;
  EXPECT_NEAR(
      summed_loss({LossKind::cross_entropy}, x, classes()).item<double>(),
      1.76486659535544, 1e-14);
  EXPECT_EQ(summed_loss({LossKind::nll}, x, classes()).item<double>(), -5.5);
  EXPECT_NEAR(
      summed_loss({LossKind::softmax_cross_entropy}, x, classes()).item<double>(),
      2.644428553727665, 1e-14);
  EXPECT_EQ(summed_loss({LossKind::mse}, x, targets).item<double>(), 51.25);
}

// loss = F.cross_entropy(F.softmax(x, 1), targets, reduction="sum"); loss.backward()
TEST(Loss, SoftmaxCrossEntropyGradientEqualsPython) {
  const auto x = outputs().set_requires_grad(true);
  summed_loss({LossKind::softmax_cross_entropy}, x, classes()).backward();
  const auto expected =
      at::tensor(
          {0.24433278129516345, 0.00658533450570932, -0.2509181158008727,
           0.029437539480748794, -0.040153982340603245, 0.010716442859854462,
           -0.24990661080428775, 0.2494744682273944, 0.0004321425768933428},
          at::kDouble)
          .view({3, 3});
  EXPECT_LE((x.grad() - expected).abs().max().item<double>(), 1e-16);
}

Loss smoothed(double label_smoothing, int64_t ignore_index = -100) {
  Loss loss{LossKind::cross_entropy};
  loss.label_smoothing = label_smoothing;
  loss.ignore_index = ignore_index;
  return loss;
}

// F.cross_entropy(x, targets, label_smoothing=..., ignore_index=..., reduction="sum")
TEST(Loss, LabelSmoothingEqualsPython) {
  EXPECT_NEAR(
      summed_loss(smoothed(0.1), outputs(), classes()).item<double>(), 2.26486659535544,
      1e-14);
  const auto x = outputs().set_requires_grad(true);
  const auto sum = summed_loss(smoothed(0.3, 1), x, classes());
  EXPECT_NEAR(sum.item<double>(), 2.4989826915980107, 1e-14);
  // The mean of Python is over two samples.
  EXPECT_NEAR(
      sum.item<double>() * loss_weight(smoothed(0.3, 1), 2, 1), 1.2494913457990053,
      1e-14);
  sum.backward();
  const auto expected =
      at::tensor(
          {0.5037488961486257, -0.06994111243042597, -0.4338077837181998, 0.0, 0.0, 0.0,
           -0.3006189209683178, 0.39938107903168213, -0.09876215806336422},
          at::kDouble)
          .view({3, 3});
  EXPECT_LE((x.grad() - expected).abs().max().item<double>(), 1e-15);
}

TEST(Loss, IgnoredTargetsCountNeitherInTheLossNorAsCorrect) {
  Loss loss{LossKind::nll};
  loss.ignore_index = 1;
  EXPECT_EQ(summed_loss(loss, outputs(), classes()).item<double>(), -2.5);
  EXPECT_EQ(count_correct(loss, outputs(), classes()).item<int64_t>(), 1);
  // A target that is no class, as with PyTorch's default.
  const auto targets = at::tensor({2, -100, 0}, at::kLong);
  EXPECT_NEAR(
      summed_loss({LossKind::softmax_cross_entropy}, outputs(), targets).item<double>(),
      2.0512729082801444, 1e-14);
  EXPECT_EQ(
      count_correct({LossKind::cross_entropy}, outputs(), targets).item<int64_t>(), 1);
}

TEST(Loss, WithoutCountedSamplesIsZero) {
  const auto x = outputs().set_requires_grad(true);
  const auto targets = at::tensor({-100, -100, -100}, at::kLong);
  (summed_loss(smoothed(0.1), x, targets) * loss_weight(smoothed(0.1), 0, 1))
      .backward();
  EXPECT_EQ(x.grad().abs().max().item<double>(), 0);
}

TEST(Loss, EvaluationHasNoLabelSmoothing) {
  const Loss loss = evaluation_loss(smoothed(0.3, 1));
  EXPECT_EQ(loss.label_smoothing, 0);
  EXPECT_EQ(loss.ignore_index, 1);
}

TEST(Loss, WeightTimesSumEqualsPythonsMean) {
  const Loss cross_entropy{LossKind::cross_entropy, Reduction::mean};
  const Loss mse{LossKind::mse, Reduction::mean};
  EXPECT_NEAR(
      1.76486659535544 * loss_weight(cross_entropy, 3, 1), 0.58828886511848, 1e-14);
  EXPECT_NEAR(51.25 * loss_weight(mse, 3, 3), 5.694444444444445, 1e-14);
  EXPECT_EQ(loss_weight({LossKind::nll, Reduction::mean}, 40, 1), 1.0 / 40);
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::mse,
        LossKind::softmax_cross_entropy}) {
    EXPECT_EQ(loss_weight({kind, Reduction::sum}, 40, 3), 1);
  }
}

TEST(Loss, SumsOfPartsAddUpToTheSumOfTheBatch) {
  const auto x = outputs();
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::softmax_cross_entropy}) {
    const double whole = summed_loss({kind}, x, classes()).item<double>();
    const double front =
        summed_loss({kind}, x.narrow(0, 0, 1), classes().narrow(0, 0, 1))
            .item<double>();
    const double back =
        summed_loss({kind}, x.narrow(0, 1, 2), classes().narrow(0, 1, 2))
            .item<double>();
    EXPECT_NEAR(front + back, whole, 1e-14);
  }
}

TEST(Loss, CountsTheSamplesWhoseLargestOutputIsTheTarget) {
  const auto x = outputs();
  EXPECT_EQ(
      count_correct({LossKind::nll}, x, at::tensor({0, 1, 2}, at::kLong))
          .item<int64_t>(),
      2);
  EXPECT_EQ(count_correct({LossKind::nll}, x, classes()).item<int64_t>(), 2);
  EXPECT_EQ(
      count_correct({LossKind::cross_entropy}, x, at::tensor({1, 0, 2}, at::kLong))
          .item<int64_t>(),
      0);
  EXPECT_EQ(count_correct({LossKind::mse}, x, x).item<int64_t>(), 0);
}

}  // namespace tandem::loss_test
