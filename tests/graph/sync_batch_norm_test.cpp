// One rank's calculation with given statistics of the other ranks. For whole runs see
// tests/parallel/batch_norm_identity_test.cpp.

#include "tandem/graph/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/comm/backends/thread.h"

namespace tandem::sync_batch_norm_test {

constexpr int64_t kChannels = 3;

at::Tensor waves(int64_t samples, at::ScalarType dtype, double shift) {
  const auto count = samples * kChannels * 4;
  return (at::linspace(-1, 20, count, at::kDouble).sin() + shift)
      .view({samples, kChannels, 2, 2})
      .to(dtype);
}

struct Result {
  at::Tensor output;
  at::Tensor grad_x;
  at::Tensor grad_weight;
  at::Tensor grad_bias;
  at::Tensor running_mean = at::zeros({kChannels}, at::kDouble);
  at::Tensor running_var = at::ones({kChannels}, at::kDouble);
};

// Runs sync_batch_norm(), or LibTorch's batch norm if `stack` is empty.
Result run(const at::Tensor& values, const StackFunction& stack) {
  const auto x = values.clone().set_requires_grad(true);
  const auto dtype = x.scalar_type();
  const auto weight = at::arange(1, 1 + kChannels).to(dtype).set_requires_grad(true);
  const auto bias = (at::arange(kChannels).to(dtype) / 4).set_requires_grad(true);
  Result result;
  auto mean = result.running_mean.to(dtype);
  auto var = result.running_var.to(dtype);
  result.output =
      stack ? sync_batch_norm(x, weight, bias, mean, var, 0.1, 1e-5, stack, "norm")
            : at::batch_norm(x, weight, bias, mean, var, true, 0.1, 1e-5, false);
  // With a loss that is linear in the output the gradient would be zero.
  result.output.pow(3).sum().backward();
  result.grad_x = x.grad();
  result.grad_weight = weight.grad();
  result.grad_bias = bias.grad();
  result.running_mean = mean;
  result.running_var = var;
  return result;
}

void expect_near(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const double scale = b.abs().max().item<double>();
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance * scale);
}

// `shares`: number of samples of each rank.
void compare(
    const std::vector<int64_t>& shares, at::ScalarType dtype, double shift,
    double tolerance) {
  int64_t total = 0;
  for (const int64_t share : shares) {
    total += share;
  }
  const auto values = waves(total, dtype, shift);
  const auto whole = run(values, {});
  EXPECT_GT(whole.grad_x.abs().max().item<double>(), 0.01);
  const auto parts = values.split_with_sizes(shares);
  std::vector<Result> ranks(shares.size());
  run_ranks(static_cast<int>(shares.size()), [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    ranks[rank] =
        run(parts[rank], [&](const at::Tensor& mine) { return comm.stack(mine); });
  });
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> grads;
  auto grad_weight = at::zeros_like(whole.grad_weight);
  auto grad_bias = at::zeros_like(whole.grad_bias);
  for (const auto& rank : ranks) {
    outputs.push_back(rank.output);
    grads.push_back(rank.grad_x);
    grad_weight += rank.grad_weight;
    grad_bias += rank.grad_bias;
    expect_near(rank.running_mean, whole.running_mean, tolerance);
    expect_near(rank.running_var, whole.running_var, tolerance);
    EXPECT_TRUE(rank.running_var.equal(ranks[0].running_var));
  }
  expect_near(at::cat(outputs), whole.output, tolerance);
  expect_near(at::cat(grads), whole.grad_x, tolerance);
  expect_near(grad_weight, whole.grad_weight, tolerance);
  expect_near(grad_bias, whole.grad_bias, tolerance);
}

TEST(SyncBatchNorm, EqualsBatchNormOfTheWholeBatch) {
  compare({6}, at::kDouble, 0, 1e-13);
  compare({3, 3}, at::kDouble, 0, 1e-13);
  compare({4, 1, 2}, at::kDouble, 0, 1e-13);
}

TEST(SyncBatchNorm, AcceptsARankWithoutSamples) {
  compare({5, 0}, at::kDouble, 0, 1e-13);
  compare({0, 2, 0}, at::kDouble, 0, 1e-13);
}

TEST(SyncBatchNorm, KeepsItsPrecisionWithALargeMean) {
  // Sums of squares would lose 12 of 16 digits.
  compare({4, 3}, at::kDouble, 1e6, 1e-8);
}

TEST(SyncBatchNorm, WorksInFloat32) {
  compare({4, 3}, at::kFloat, 0, 1e-5);
}

}  // namespace tandem::sync_batch_norm_test
