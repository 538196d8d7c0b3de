// Gradients and running statistics of DataParallel do not depend on the timing of
// replicas; random numbers do.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/parallel/ddp/does.h"
#include "tests/parity/numbers.h"

namespace tandem::data_parallel_order_test {

using Chunks = std::vector<at::Tensor>;

// Pauses for a different time in each pass and thread.
void pause() {
  static std::atomic<unsigned> state(1);
  const unsigned next = state.fetch_add(747796405U) * 2891336453U;
  std::this_thread::sleep_for(std::chrono::microseconds(next % 500));
}

at::Tensor wide(const at::Tensor& numbers) {
  return (numbers * 1.1).sin().to(at::kFloat);
}

// --- gradients ---

// A layer that uses its weight twice, so that each replica's gradient is a sum.
at::Tensor twice(const at::Tensor& x, const at::Tensor& weight) {
  pause();
  return (x * weight).sin().matmul(weight.view({3, 1}) * x.sum());
}

TEST(DataParallelOrder, GradientsHaveEqualBitsInEachPass) {
  for (const int64_t replicas : {2, 3, 4}) {
    auto model =
        rows_model([](Rows& self, auto x) { return twice(x, self.weight); }, replicas);
    auto& weight = model->module()->weight;
    weight.set_data(wide(numbers(5, {3})));
    const auto x = wide(numbers(1, {7, 3}));
    at::Tensor sum = at::zeros({3});
    for (const auto& chunk : x.chunk(replicas)) {
      weight.mutable_grad() = at::Tensor();
      twice(chunk, weight).square().sum().backward();
      sum += weight.grad();
    }
    at::Tensor first;
    for (int pass = 0; pass < 30; ++pass) {
      weight.mutable_grad() = at::Tensor();
      model->forward(x).square().sum().backward();
      first = pass == 0 ? weight.grad() : first;
      ASSERT_TRUE(weight.grad().equal(first)) << replicas << ", " << pass;
    }
    EXPECT_TRUE(first.allclose(sum, 1e-5)) << replicas;
  }
}

TEST(DataParallelOrder, ReplicaAddsNothingToUnusedParameters) {
  auto model = rows_model(
      [](Rows& self, auto x) { return x.size(0) == 3 ? x * self.weight : x; });
  const auto x = numbers(1, {7, 3});
  model->forward(x).sum().backward();
  EXPECT_LE(
      difference(flat(model->module()->weight.grad()), flat(x.narrow(0, 0, 6).sum(0))),
      1e-14);
  auto none = rows_model([](Rows&, auto chunk) { return chunk; });
  const auto input = numbers(1, {7, 3}).set_requires_grad(true);
  none->forward(input).sum().backward();
  EXPECT_FALSE(none->module()->weight.grad().defined());
  EXPECT_TRUE(at::Tensor(input).grad().equal(at::ones({7, 3}, at::kDouble)));
}

TEST(DataParallelOrder, RunningStatisticsAreTheFirstReplicas) {
  // The bits of batch norm depend on the number of intra-op threads.
  const int num_threads = at::get_num_threads();
  at::set_num_threads(1);
  torch::nn::BatchNorm1d alone(3);
  torch::nn::BatchNorm1d net(3);
  DataParallel<torch::nn::BatchNorm1d> model(net, 3);
  for (int64_t step = 0; step < 50; ++step) {
    const auto x = wide(numbers(step, {12, 3}));
    alone->forward(x.narrow(0, 0, 4));
    model->forward(x);
    ASSERT_TRUE(net->running_mean.equal(alone->running_mean)) << step;
    ASSERT_TRUE(net->running_var.equal(alone->running_var)) << step;
  }
  EXPECT_EQ(net->num_batches_tracked.item<int64_t>(), 50);
  at::set_num_threads(num_threads);
}

// --- random numbers ---

at::Tensor state_of_generator() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

TEST(DataParallelOrder, CloningDrawsNoRandomNumbers) {
  torch::nn::Linear net(3, 2);
  const auto before = state_of_generator();
  DataParallel<torch::nn::Linear> model(net, 3);
  model->replicate();
  model->forward(at::ones({6, 3}));
  EXPECT_TRUE(state_of_generator().equal(before));
}

// The order of masks depends on timing, but the set of masks does not.
TEST(DataParallelOrder, DropoutUsesLibTorchsGenerator) {
  const auto dropout = [](const at::Tensor& x) {
    pause();
    return at::dropout(x, 0.5, true);
  };
  auto model = rows_model([&](Rows&, auto x) { return dropout(x); });
  const auto sorted_rows = [](const at::Tensor& masks) {
    std::vector<Numbers> rows;
    for (const auto& row : masks.unbind()) {
      rows.push_back(flat(row));
    }
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  torch::manual_seed(8);
  Chunks one_by_one;
  for (int i = 0; i < 3; ++i) {
    one_by_one.push_back(dropout(at::ones({1, 50})));
  }
  const auto wanted = sorted_rows(at::cat(one_by_one));
  const auto after = state_of_generator();
  EXPECT_NE(wanted[0], wanted[1]);
  torch::manual_seed(8);
  EXPECT_EQ(sorted_rows(model->forward(at::ones({3, 50}))), wanted);
  EXPECT_TRUE(state_of_generator().equal(after));
}

}  // namespace tandem::data_parallel_order_test
