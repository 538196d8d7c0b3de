// What does not depend on which of DataParallel's replicas is faster: the bits of
// gradients and running statistics, random numbers.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/parallel/ddp/does.h"
#include "tests/parity/numbers.h"

namespace tandem::data_parallel_order_test {

using Chunks = std::vector<at::Tensor>;

// A pause that is another one in every pass and thread.
void pause() {
  static std::atomic<unsigned> state(1);
  const unsigned next = state.fetch_add(747796405U) * 2891336453U;
  std::this_thread::sleep_for(std::chrono::microseconds(next % 500));
}

at::Tensor wide(const at::Tensor& numbers) {
  return (numbers * 1.1).sin().to(at::kFloat);
}

// --- gradients ---

// A layer whose weight is used twice, so that a replica's own gradient is a sum too.
at::Tensor twice(const at::Tensor& x, const at::Tensor& weight) {
  pause();
  return (x * weight).sin().matmul(weight.view({3, 1}) * x.sum());
}

TEST(DataParallelOrder, GradientsAreAddedUpInTheOrderOfReplicas) {
  for (const int64_t replicas : {2, 3, 4}) {
    auto model =
        rows_model([](Rows& self, auto x) { return twice(x, self.weight); }, replicas);
    auto& weight = model->module()->weight;
    weight.set_data(wide(numbers(5, {3})));
    const auto x = wide(numbers(1, {7, 3}));
    at::Tensor wanted;
    for (const auto& chunk : x.chunk(replicas)) {
      weight.mutable_grad() = at::Tensor();
      twice(chunk, weight).square().sum().backward();
      wanted = wanted.defined() ? wanted + weight.grad() : weight.grad();
    }
    for (int pass = 0; pass < 30; ++pass) {
      weight.mutable_grad() = at::Tensor();
      model->forward(x).square().sum().backward();
      ASSERT_TRUE(weight.grad().equal(wanted)) << replicas << ", " << pass;
    }
  }
}

TEST(DataParallelOrder, AReplicaThatDoesNotUseAParameterAddsNothing) {
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
}

// --- random numbers ---

// An operator of each kind, a pause before each.
at::Tensor draw(const at::Tensor& x) {
  Chunks drawn = {x.flatten()};
  const auto add = [&](const at::Tensor& more) {
    drawn.push_back(more.to(at::kDouble).flatten());
    pause();
  };
  pause();
  add(at::dropout(x, 0.5, true));
  add(at::rand({5}));
  add(at::randn({3}));  // three: half of the next pair is kept
  add(at::randn({40}));
  add(at::randint(1'000'000, {4}));
  add(at::randperm(6));
  add(at::empty({5}).uniform_(0, 1));
  add(at::bernoulli(at::ones({20}) / 2));
  add(at::normal(at::ones({4}), 2.0));
  return at::cat(drawn).unsqueeze(0);
}

at::Tensor drawn_by(int64_t replicas, uint64_t seed, int passes = 1) {
  auto model = rows_model([](Rows&, auto x) { return draw(x); }, replicas);
  torch::manual_seed(seed);
  at::Tensor last;
  for (int pass = 0; pass < passes; ++pass) {
    last = model->forward(at::ones({replicas, 30}, at::kDouble));
  }
  return last;
}

TEST(DataParallelOrder, RandomNumbersFollowFromSeedAndNumberOfReplicas) {
  for (const int64_t replicas : {2, 3, 4}) {
    const auto first = drawn_by(replicas, 5);
    for (int again = 0; again < 20; ++again) {
      ASSERT_TRUE(drawn_by(replicas, 5).equal(first)) << replicas << ", " << again;
    }
    EXPECT_FALSE(drawn_by(replicas, 6).equal(first));
    EXPECT_FALSE(drawn_by(replicas, 5, 2).equal(first)) << "the next pass";
    EXPECT_TRUE(drawn_by(replicas, 5, 2).equal(drawn_by(replicas, 5, 2)));
    for (int64_t replica = 1; replica < replicas; ++replica) {
      EXPECT_FALSE(first[replica].equal(first[0])) << "replicas draw the same";
    }
  }
}

TEST(DataParallelOrder, AReplicaThatDrawsMoreDoesNotDisturbOthers) {
  const auto of_others = [](int more) {
    auto model = rows_model([=](Rows&, auto x) {
      pause();
      const bool first = x[0][0].template item<double>() == 0;
      for (int i = 0; first && i < more; ++i) {
        at::rand({3});
      }
      return at::dropout(at::ones({1, 50}), 0.5, true);
    });
    torch::manual_seed(1);
    return model->forward(at::arange(3, at::kDouble).view({3, 1})).narrow(0, 1, 2);
  };
  EXPECT_TRUE(of_others(0).equal(of_others(7)));
}

TEST(DataParallelOrder, DropoutModulesTrainToEqualBits) {
  const auto trained = [] {
    torch::manual_seed(3);
    torch::nn::Sequential net(
        torch::nn::Linear(8, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 2));
    DataParallel<torch::nn::Sequential> model(net, 3);
    for (int64_t step = 0; step < 10; ++step) {
      net->zero_grad();
      model->forward(wide(numbers(step, {7, 8}))).square().sum().backward();
      const at::NoGradGuard guard;
      for (auto& parameter : net->parameters()) {
        parameter.sub_(parameter.grad() * 0.1);
      }
    }
    return net->parameters()[0].detach().clone();
  };
  const auto first = trained();
  for (int again = 0; again < 5; ++again) {
    EXPECT_TRUE(trained().equal(first)) << again;
  }
}

at::Tensor state_of_generator() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

TEST(DataParallelOrder, TheProcessesGeneratorIsTakenFromOnlyWhereAReplicaDraws) {
  torch::manual_seed(8);
  const auto before = state_of_generator();
  torch::nn::Linear net(3, 2);
  torch::manual_seed(8);
  DataParallel<torch::nn::Linear> model(net, 3);
  EXPECT_TRUE(state_of_generator().equal(before)) << "cloning drew";
  model->forward(at::ones({6, 3}));
  EXPECT_TRUE(state_of_generator().equal(before)) << "forward drew";
  auto random = rows_model([](Rows&, auto x) { return draw(x); });
  random->forward(at::ones({3, 30}, at::kDouble));
  const auto after = state_of_generator();
  EXPECT_FALSE(after.equal(before));
  // A number for each replica, however much they drew.
  torch::manual_seed(8);
  random->forward(at::ones({3, 60}, at::kDouble));
  EXPECT_TRUE(state_of_generator().equal(after));
  torch::manual_seed(8);
  at::randn({1});
  random->forward(at::ones({3, 30}, at::kDouble));
  EXPECT_FALSE(state_of_generator().equal(after));
}

TEST(DataParallelOrder, AnErrorWhileDrawingLeavesTheGeneratorWhole) {
  auto model = rows_model([](Rows&, auto x) { return at::bernoulli(x * 7); });
  torch::manual_seed(8);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_THROW(model->forward(at::ones({3, 2})), Error);
  }
  const auto drawn = at::rand({4});
  torch::manual_seed(8);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_THROW(model->forward(at::ones({3, 2})), Error);
  }
  EXPECT_TRUE(at::rand({4}).equal(drawn));
}

}  // namespace tandem::data_parallel_order_test
