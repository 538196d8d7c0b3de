#include "tandem/model/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::loss_test {

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
  EXPECT_EQ(summed_loss({LossKind::l1}, x, targets).item<double>(), 15.5);
  EXPECT_NEAR(
      summed_loss({LossKind::bce}, x, targets / 2).item<double>(), 10.741268852396967,
      1e-14);
}

TEST(Loss, NumbersMayHaveAnotherShapeAndTypeThanTheOutputs) {
  const auto column = at::tensor({1.0, -2.0, 0.5}, at::kDouble).view({3, 1});
  const auto targets = at::tensor({0.0F, 1.0F, 0.5F});
  for (const auto kind : {LossKind::mse, LossKind::l1, LossKind::bce}) {
    EXPECT_EQ(
        summed_loss({kind}, column, targets).item<double>(),
        summed_loss({kind}, column, targets.to(at::kDouble).view({3, 1}))
            .item<double>());
  }
  EXPECT_EQ(metric_sum({LossKind::l1}, column, targets).item<double>(), 4);
}

TEST(Loss, NumbersOfAnotherSizeAreAnError) {
  for (const auto kind : {LossKind::mse, LossKind::l1, LossKind::bce}) {
    EXPECT_THAT(
        error_of<ConfigError>([&] {
          summed_loss({kind}, outputs(), at::zeros({3, 2}, at::kDouble));
        }),
        testing::Eq(
            "[model] the number of outputs is 3, expected 2, the number of targets of "
            "a sample; give the last layer 2 outputs"));
  }
}

// Samples x positions x classes, and samples x classes x height x width.
TEST(Loss, PositionsCountLikeSamples) {
  const auto classes_at_end = at::stack({outputs(), outputs().flip(0)});
  const auto targets = at::stack({classes(), at::tensor({1, -100, 2}, at::kLong)});
  const auto pixels = classes_at_end.transpose(1, 2).unsqueeze(3);
  const auto rows = classes_at_end.view({6, 3});
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::softmax_cross_entropy}) {
    SCOPED_TRACE(name_of(kind));
    const double expected = summed_loss({kind}, rows, targets.view(-1)).item<double>();
    const int64_t correct = metric_sum({kind}, rows, targets.view(-1)).item<int64_t>();
    EXPECT_NEAR(
        summed_loss({kind}, classes_at_end, targets).item<double>(), expected, 1e-14);
    EXPECT_EQ(metric_sum({kind}, classes_at_end, targets).item<int64_t>(), correct);
    EXPECT_NEAR(
        summed_loss({kind}, pixels, targets.unsqueeze(2)).item<double>(), expected,
        1e-14);
    EXPECT_EQ(
        metric_sum({kind}, pixels, targets.unsqueeze(2)).item<int64_t>(), correct);
  }
}

TEST(Loss, ShapesOfOutputsAreCompared) {
  check_output_shape({4, 3}, {4}, 3);
  check_output_shape({4, 7, 3}, {4, 7}, 3);
  check_output_shape({4, 3, 7, 8}, {4, 7, 8}, 3);
  const auto error = [](at::IntArrayRef output, at::IntArrayRef targets) {
    return error_of<ConfigError>([&] { check_output_shape(output, targets, 3); });
  };
  EXPECT_EQ(
      error({4, 3, 1}, {4}),
      "[model] the shape of the output is [4, 3, 1], expected [4, 3], samples x "
      "classes; change the output of the model");
  EXPECT_THAT(error({4, 3}, {4, 7}), HasSubstr("[4, 7, 3], samples x positions x"));
  EXPECT_THAT(error({4, 3, 7}, {4, 7}), HasSubstr("expected [4, 7, 3]"));
  EXPECT_THAT(error({4, 7, 2}, {4, 7}), HasSubstr("the number of outputs is 2"));
  testing::internal::CaptureStderr();
  check_output_shape({4, 7, 9}, {4, 7}, 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
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
  EXPECT_EQ(metric_sum(loss, outputs(), classes()).item<int64_t>(), 1);
  // A target that is no class, as with PyTorch's default.
  const auto targets = at::tensor({2, -100, 0}, at::kLong);
  EXPECT_NEAR(
      summed_loss({LossKind::softmax_cross_entropy}, outputs(), targets).item<double>(),
      2.0512729082801444, 1e-14);
  EXPECT_EQ(
      metric_sum({LossKind::cross_entropy}, outputs(), targets).item<int64_t>(), 1);
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
  EXPECT_EQ(loss_weight({LossKind::l1}, 3, 3), 1.0 / 9);
  EXPECT_EQ(loss_weight({LossKind::bce}, 3, 3), 1.0 / 9);
  EXPECT_EQ(loss_weight({LossKind::nll, Reduction::mean}, 40, 1), 1.0 / 40);
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::mse, LossKind::l1,
        LossKind::bce, LossKind::softmax_cross_entropy}) {
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
      metric_sum({LossKind::nll}, x, at::tensor({0, 1, 2}, at::kLong)).item<int64_t>(),
      2);
  EXPECT_EQ(metric_sum({LossKind::nll}, x, classes()).item<int64_t>(), 2);
  EXPECT_EQ(
      metric_sum({LossKind::cross_entropy}, x, at::tensor({1, 0, 2}, at::kLong))
          .item<int64_t>(),
      0);
}

TEST(Loss, MetricOfNumbersIsTheAbsoluteErrorOrTheLabelsOfBce) {
  const auto x = outputs();
  const auto targets = at::eye(3, at::kDouble);
  for (const auto kind : {LossKind::mse, LossKind::l1}) {
    EXPECT_EQ(metric_sum({kind}, x, targets).item<double>(), 14.5);
    EXPECT_STREQ(Loss{kind}.metric().key, "mae");
  }
  // Labels 1, 0, 0; 0, 1, 0; 0, 0, 1 against 1, 0, 1; 0, 1, 0; 1, 1, 0.
  EXPECT_EQ(metric_sum({LossKind::bce}, x, targets).item<int64_t>(), 5);
  EXPECT_STREQ(Loss{LossKind::bce}.metric().key, "accuracy");
  // A custom loss, such as that of a distribution with two parameters.
  const Loss own{LossKind::mse, Reduction::mean, [](const auto& y, const auto&) {
                   return y.sum();
                 }};
  EXPECT_TRUE(std::isnan(metric_sum(own, x, targets.select(1, 0)).item<double>()));
  EXPECT_EQ(kAccuracy.value(5, 9), 100 * 5.0 / 9);
  EXPECT_EQ(kAbsoluteError.value(14.5, 9), 14.5 / 9);
  EXPECT_EQ(kAbsoluteError.value(0, 0), 0);
}

}  // namespace tandem::loss_test
