// DataParallel's use of the state of module and caller, and its errors. Its results are
// tested in data_parallel_parity_test.cpp.

#include "tandem/parallel/ddp/data_parallel_module.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/exec/autocast.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/ddp/does.h"
#include "tests/parity/numbers.h"

namespace tandem::data_parallel_module_test {

using testing::ElementsAre;

// Compares with a tolerance, because the last bits of a product depend on the batch
// size.
bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.allclose(b, 1e-5, 1e-6);
}

// --- the wrapped module ---

TEST(DataParallelModule, WrappedModuleIsAChild) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  DataParallel<torch::nn::Sequential> model(net, 2);
  EXPECT_EQ(model->module().get(), net.get());
  EXPECT_EQ(model->num_replicas(), 2);
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(
      parameters["module.0.weight"].is_same(net->named_parameters()["0.weight"]));
  const auto x = at::ones({4, 3});
  model->eval();
  EXPECT_FALSE(net->is_training());
  EXPECT_TRUE(close(model(x), net->forward(x)));
  model->to(at::kDouble);
  EXPECT_EQ(model->forward(x.to(at::kDouble)).scalar_type(), at::kDouble);
}

// A module that returns the addresses of its parameter and its buffer.
struct MemoryImpl : torch::nn::Cloneable<MemoryImpl> {
  MemoryImpl() {
    MemoryImpl::reset();
  }
  void reset() override {
    weight = register_parameter("weight", at::ones({2}));
    buffer = register_buffer("buffer", at::ones({2}));
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& /*rows*/) const {
    const auto address = [](const at::Tensor& tensor) {
      return at::full({1}, reinterpret_cast<int64_t>(tensor.data_ptr()), at::kLong);
    };
    return {address(weight), address(buffer)};
  }

  at::Tensor weight, buffer;
};
TORCH_MODULE(Memory);

TEST(DataParallelModule, ReplicasShareParametersAndOnlyTheFirstSharesBuffers) {
  Memory net;
  const auto [own_weight, own_buffer] = net->forward({});
  DataParallel<Memory> model(net, 3);
  const auto [weights, buffers] = model->forward(at::ones({3, 1}));
  EXPECT_TRUE(weights.eq(own_weight).all().item<bool>());
  EXPECT_THAT(flat(buffers.eq(own_buffer)), ElementsAre(1, 0, 0));
}

struct Holder : torch::nn::Module {
  Holder() {
    bn = register_module("bn", torch::nn::BatchNorm1d(3));
    fc = register_module("fc", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return fc(bn(x)) * factor;
  }
  void replace_fc() {
    fc = replace_module("fc", torch::nn::Linear(3, 5));
  }

  torch::nn::BatchNorm1d bn{nullptr};
  torch::nn::Linear fc{nullptr};
  double factor = 1;
};

// clone() need not copy values, because DataParallel does.
struct Cloning : Holder {
  std::shared_ptr<torch::nn::Module> clone(
      const c10::optional<at::Device>& /*device*/ = c10::nullopt) const override {
    return std::make_shared<Cloning>();
  }
};

struct CloningAnother : Holder {
  std::shared_ptr<torch::nn::Module> clone(
      const c10::optional<at::Device>& /*device*/ = c10::nullopt) const override {
    return torch::nn::Linear(3, 2).ptr();
  }
};

TEST(DataParallelModule, NeedsCloneForTwoOrMoreReplicas) {
  const auto x = numbers(3, {5, 3}).to(at::kFloat);
  const auto net = std::make_shared<Cloning>();
  net->eval();
  DataParallel<Cloning> model(net, 2);
  EXPECT_TRUE(close(model->forward(x), net->forward(x)));
  const auto without = std::make_shared<Holder>();
  expect_error<ConfigError>(
      [&] { DataParallel<Holder>(without, 2); },
      {"cannot be cloned", "torch::nn::Cloneable"});
  without->eval();
  const auto y = DataParallel<Holder>(without, 1)->forward(x);
  EXPECT_TRUE(close(y, without->forward(x)));
  expect_error<ConfigError>(
      [] { DataParallel<CloningAnother>(std::make_shared<CloningAnother>(), 2); },
      {"clone() returns a module with other parameters"});
}

TEST(DataParallelModule, FollowsChangesOfTheModule) {
  const auto net = std::make_shared<Cloning>();
  DataParallel<Cloning> model(net, 2);
  model->eval();
  auto x = numbers(3, {5, 3}).to(at::kFloat);
  const auto expect_same = [&](const char* after) {
    EXPECT_TRUE(close(model->forward(x), net->forward(x))) << after;
  };
  {
    const at::NoGradGuard guard;
    net->fc->weight.mul_(2);
    net->bn->running_mean.add_(3);
  }
  expect_same("values in place");
  net->fc->bias.set_data(at::ones({2}));
  expect_same("other memory");
  net->to(at::kDouble);
  x = x.to(at::kDouble);
  expect_same("another dtype");
  net->replace_fc();
  net->to(at::kDouble);
  expect_same("another layer");
}

TEST(DataParallelModule, ReplicateFollowsChangesOfOtherMembers) {
  auto model = rows_model([](Rows& self, auto x) { return x * self.factor; });
  const auto x = numbers(3, {5, 3});
  model->module()->factor = 5;
  EXPECT_TRUE(model->forward(x).equal(x));
  model->replicate();
  EXPECT_TRUE(model->forward(x).equal(x * 5));
}

TEST(DataParallelModule, ClonesAnAddedLayer) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4));
  DataParallel<torch::nn::Sequential> model(net, 3);
  net->push_back(torch::nn::Linear(4, 2));
  const auto x = numbers(3, {5, 3}).to(at::kFloat);
  EXPECT_TRUE(close(model->forward(x), net->forward(x)));
}

TEST(DataParallelModule, FollowsFreezingOfParameters) {
  torch::nn::Linear net(3, 2);
  DataParallel<torch::nn::Linear> model(net, 2);
  const auto x = numbers(3, {5, 3}).to(at::kFloat);
  net->weight.set_requires_grad(false);
  model->forward(x).sum().backward();
  EXPECT_FALSE(net->weight.grad().defined());
  EXPECT_TRUE(net->bias.grad().equal(at::full({2}, 5.0f)));
  net->bias.set_requires_grad(false);
  EXPECT_FALSE(model->forward(x).requires_grad());
  net->weight.set_requires_grad(true);
  model->forward(x).sum().backward();
  EXPECT_TRUE(net->weight.grad().defined());
}

// --- the caller's state ---

TEST(DataParallelModule, ReplicasHaveTheCallersGradModeAndAutocast) {
  torch::nn::Linear net(3, 2);
  DataParallel<torch::nn::Linear> model(net, 3);
  const auto x = numbers(3, {7, 3}).to(at::kFloat);
  EXPECT_TRUE(model->forward(x).requires_grad());
  {
    const at::NoGradGuard guard;
    EXPECT_FALSE(model->forward(x).requires_grad());
  }
  {
    const c10::InferenceMode guard;
    EXPECT_TRUE(model->forward(x).is_inference());
  }
  {
    const Autocast bf16(true, at::kCPU);
    const auto y = model->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.sum().backward();
    EXPECT_EQ(net->weight.grad().scalar_type(), at::kFloat);
  }
  EXPECT_EQ(model->forward(x).scalar_type(), at::kFloat);
  EXPECT_TRUE(close(model->forward(x), net->forward(x)));
}

TEST(DataParallelModule, EachReplicaKeepsItsThread) {
  std::mutex mutex;
  std::map<std::thread::id, int> threads;
  auto model = rows_model([&](Rows&, auto x) {
    const std::lock_guard<std::mutex> lock(mutex);
    ++threads[std::this_thread::get_id()];
    return x;
  });
  for (int pass = 0; pass < 4; ++pass) {
    model->forward(at::ones({6, 1}));
  }
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
  ASSERT_EQ(threads.size(), 3u);
  for (const auto& [id, passes] : threads) {
    EXPECT_EQ(passes, 4);
  }
}

TEST(DataParallelModule, IntraOpThreadsAreDividedAmongReplicas) {
  const int before = at::get_num_threads();
  at::set_num_threads(5);
  auto model = rows_model(
      [](Rows&, auto) { return at::full({1}, at::get_num_threads(), at::kLong); }, 2);
  EXPECT_EQ(at::get_num_threads(), 5);
  EXPECT_THAT(flat(model->forward(at::ones({2, 1}))), ElementsAre(2, 2));
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 5); }).join();
  at::set_num_threads(before);
}

TEST(DataParallelModule, ForwardWithoutGradIsAllowedBetweenForwardAndBackward) {
  torch::nn::BatchNorm1d net(3);
  DataParallel<torch::nn::BatchNorm1d> model(net, 2);
  const auto x = numbers(3, {6, 3}).to(at::kFloat);
  model->forward(x).square().sum().backward();
  const auto wanted = net->weight.grad().clone();
  net->zero_grad();
  const auto loss = model->forward(x).square().sum();
  {
    const at::NoGradGuard guard;
    model->forward(x + 1);
  }
  loss.backward();
  EXPECT_TRUE(net->weight.grad().equal(wanted));
}

TEST(DataParallelModule, WorksWithinDistributedDataParallel) {
  const auto gradients = on_each_rank("thread", 2, [](Communicator& comm) {
    torch::nn::Linear net(3, 2);
    net->to(at::kDouble);
    const DistributedDataParallel ddp(*net, comm);
    DataParallel<torch::nn::Linear> model(net, 2);
    model->forward(numbers(comm.rank(), {5, 3})).sum().backward();
    return flat(net->weight.grad());
  });
  const auto mean =
      (numbers(0, {5, 3}).sum(0) + numbers(1, {5, 3}).sum(0)).div(2).repeat({2});
  for (const auto& gradient : gradients) {
    EXPECT_LE(difference(gradient, flat(mean)), 1e-14);
  }
}

// --- errors ---

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(DataParallelModule, ErrorNamesTheReplicaAndKeepsTheCause) {
  auto model = rows_model([](Rows&, at::Tensor x) -> at::Tensor {
    if (x.min().item<double>() >= 4) {
      throw OwnError("row " + std::to_string(x.min().item<int64_t>()) + "\nmore");
    }
    return x;
  });
  // Replica 1 has rows 3 to 5, replica 2 has row 6.
  const auto rows = [](double first) { return at::arange(7, at::kDouble) + first; };
  EXPECT_THAT(
      error_of<Error>([&] { model->forward(rows(0)); }),
      "[data_parallel] replica 2 of 3: row 6");
  // If several replicas throw, the error is that of the first, regardless of timing.
  for (int pass = 0; pass < 20; ++pass) {
    EXPECT_THAT(
        error_of<Error>([&] { model->forward(rows(2)); }),
        "[data_parallel] replica 1 of 3: row 5");
  }
  try {
    model->forward(rows(4));
  } catch (const Error& error) {
    EXPECT_EQ(
        error_of<OwnError>([&] { std::rethrow_if_nested(error); }), "row 4\nmore");
  }
  EXPECT_EQ(model->forward(rows(-9)).size(0), 7) << "works after an error";
}

TEST(DataParallelModule, RejectsAForwardDuringAForward) {
  std::function<at::Tensor(const at::Tensor&)> again;
  auto model = rows_model([&](Rows&, at::Tensor x) { return again(x); }, 2);
  again = [&](const at::Tensor& x) { return model->forward(x); };
  expect_error<Error>(
      [&] {
        model->forward(at::ones({4, 1}));
      },
      {"replica 0 of 2", "expected one call at a time"});
}

struct Elsewhere : torch::nn::Cloneable<Elsewhere> {
  Elsewhere() {
    Elsewhere::reset();
  }
  void reset() override {
    register_parameter("weight", at::empty({2}, at::TensorOptions(at::kMeta)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x;
  }
};

TEST(DataParallelModule, RejectsZeroReplicasAndOtherDevices) {
  torch::nn::Linear net(3, 2);
  for (const int64_t count : {0, -2}) {
    expect_error<ConfigError>(
        [&] { DataParallel<torch::nn::Linear>(net, count); },
        {"is " + std::to_string(count) + ", expected 1 or more"});
  }
  DataParallel<Elsewhere> model(std::make_shared<Elsewhere>(), 2);
  expect_error<ConfigError>(
      [&] {
        model->forward(at::ones({4, 3}));
      },
      {"is on meta, expected cpu"});
}

}  // namespace tandem::data_parallel_module_test
