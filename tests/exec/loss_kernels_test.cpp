// The compiled executor's loss kernels against LibTorch's operators.

#include "tandem/exec/compiled/loss_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/core/expect.h"

namespace tandem::loss_kernels_test {

// Outputs for 7 samples of 10 classes, from nearly equal to 30 apart.
at::Tensor outputs() {
  const auto rows = at::linspace(0, 200, 70).sin().view({7, 10});
  return (rows * at::linspace(0.1, 15, 7).view({7, 1})).contiguous();
}

at::Tensor targets_for(LossKind kind) {
  return row_of(kind).of_numbers ? at::linspace(-1, 3, 70).view({7, 10})
                                 : at::arange(3, 24, 3).remainder(10);
}

void expect_equals_libtorch(const Loss& loss, const at::Tensor& targets) {
  auto wide = outputs().to(at::kDouble).set_requires_grad(true);
  const auto expected =
      summed_loss(loss, wide, loss.of_numbers() ? targets.to(at::kDouble) : targets);
  (expected * 0.25).backward();

  const LossSums sums = sum_losses(loss, outputs(), targets);
  EXPECT_NEAR(
      sums.loss, expected.item<double>(), 1e-6 * std::abs(expected.item<double>()));
  const double metric = metric_sum(loss, wide, targets).item<double>();
  EXPECT_NEAR(sums.metric, metric, 1e-6 * metric);
  auto gradient = at::empty({7, 10});
  loss_gradient(loss, outputs(), targets, 0.25, gradient.data_ptr<float>());
  EXPECT_LE(
      (gradient - wide.grad()).abs().max().item<double>(),
      1e-6 * wide.grad().abs().max().item<double>());
}

TEST(LossKernels, EqualLibTorch) {
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::mse, LossKind::l1,
        LossKind::bce, LossKind::softmax_cross_entropy}) {
    SCOPED_TRACE(name_of(kind));
    expect_equals_libtorch({kind}, targets_for(kind));
  }
}

TEST(LossKernels, SmoothLabelsAndIgnoreTargetsAsLibTorch) {
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::softmax_cross_entropy}) {
    for (const double label_smoothing : {0.0, 0.1, 1.0}) {
      // The targets have 9 twice, and no -100.
      for (const int64_t ignored : {-100, 9}) {
        SCOPED_TRACE(std::string(name_of(kind)) + " " + std::to_string(ignored));
        Loss loss{kind};
        loss.label_smoothing = kind == LossKind::cross_entropy ? label_smoothing : 0;
        loss.ignore_index = ignored;
        expect_equals_libtorch(loss, targets_for(kind));
        auto targets = targets_for(kind);
        targets[2] = ignored;
        expect_equals_libtorch(loss, targets);
      }
    }
  }
}

// For a confident wrong output the loss is finite and the gradient zero.
TEST(LossKernels, SoftmaxCrossEntropyIsFiniteForSoftmaxOfZeroAndOne) {
  const auto output = at::linspace(-9e5, 9e5, 10).view({1, 10});
  const auto sure_and_wrong = at::arange(0, 1);
  const LossSums sums =
      sum_losses({LossKind::softmax_cross_entropy}, output, sure_and_wrong);
  EXPECT_NEAR(sums.loss, std::log(9 + std::exp(1)), 1e-6);
  auto gradient = at::empty({1, 10});
  loss_gradient(
      {LossKind::softmax_cross_entropy}, output, sure_and_wrong, 1,
      gradient.data_ptr<float>());
  EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

}  // namespace tandem::loss_kernels_test
