// The compiled executor's loss kernels against LibTorch's operators.

#include "tandem/exec/compiled/loss_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/expect.h"

namespace tandem::loss_kernels_test {

// Outputs for 7 samples of 10 classes, from nearly equal to 30 apart.
at::Tensor outputs() {
  const auto rows = at::linspace(0, 200, 70).sin().view({7, 10});
  return (rows * at::linspace(0.1, 15, 7).view({7, 1})).contiguous();
}

at::Tensor targets_for(LossKind kind) {
  return kind == LossKind::mse ? at::linspace(-1, 3, 70).view({7, 10})
                               : at::arange(3, 24, 3).remainder(10);
}

TEST(LossKernels, EqualLibTorch) {
  for (const auto kind :
       {LossKind::cross_entropy, LossKind::nll, LossKind::mse,
        LossKind::softmax_cross_entropy}) {
    SCOPED_TRACE(name_of(kind));
    const auto targets = targets_for(kind);
    auto wide = outputs().to(at::kDouble).set_requires_grad(true);
    const auto expected = summed_loss(
        kind, wide, kind == LossKind::mse ? targets.to(at::kDouble) : targets);
    (expected * 0.25).backward();

    const LossSums sums = sum_losses(kind, outputs(), targets);
    EXPECT_NEAR(
        sums.loss, expected.item<double>(), 1e-6 * std::abs(expected.item<double>()));
    EXPECT_EQ(sums.correct, count_correct(kind, wide, targets).item<int64_t>());
    auto gradient = at::empty({7, 10});
    loss_gradient(kind, outputs(), targets, 0.25, gradient.data_ptr<float>());
    EXPECT_LE(
        (gradient - wide.grad()).abs().max().item<double>(),
        1e-6 * wide.grad().abs().max().item<double>());
  }
}

// For a confident wrong output the loss is finite and the gradient zero.
TEST(LossKernels, SoftmaxCrossEntropyIsFiniteForSoftmaxOfZeroAndOne) {
  const auto output = at::linspace(-9e5, 9e5, 10).view({1, 10});
  const auto sure_and_wrong = at::arange(0, 1);
  const LossSums sums =
      sum_losses(LossKind::softmax_cross_entropy, output, sure_and_wrong);
  EXPECT_NEAR(sums.loss, std::log(9 + std::exp(1)), 1e-6);
  auto gradient = at::empty({1, 10});
  loss_gradient(
      LossKind::softmax_cross_entropy, output, sure_and_wrong, 1,
      gradient.data_ptr<float>());
  EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

}  // namespace tandem::loss_kernels_test
