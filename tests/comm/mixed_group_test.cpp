// Rank 0 of tandem and rank 1 of PyTorch (tests/parity/peer.py) train in one Gloo
// group: both send the same messages.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "tandem/core/torch_compat.h"
#include "tandem/model/model.h"
#include "tandem/optim/optimizer.h"
#include "tests/comm/group.h"
#include "tests/parity/python.h"

namespace tandem::mixed_group_test {

constexpr int64_t kSteps = 3;
constexpr double kLr = 0.05;

// One rank's half of each global batch of 8.
at::Tensor loss_of(Model& model) {
  const auto inputs = at::linspace(-1, 2, 4 * 784, at::kDouble).sin();
  const auto output = model.forward(inputs.view({4, 1, 28, 28}), {});
  return summed_loss({LossKind::nll}, output, at::arange(4)) / 8;
}

// Returns the largest difference between the parameters of ranks 0 and 1 after some
// steps.
double train(Communicator& comm) {
  ModelOptions options;
  options.seed = 1;
  options.dtype = at::kDouble;
  options.dropout = false;
  const auto model = make_model(ModelKind::net, options);
  ModelArenas arenas(model->parameters(), model->buffers());
  OptimizerOptions sgd;
  sgd.lr = kLr;
  sgd.momentum = 0.9;
  sgd.weight_decay = 5e-4;
  const auto optimizer = make_optimizer(sgd, arenas.parameters(), arenas.gradients());
  for (int64_t step = 1; step <= kSteps; ++step) {
    arenas.gradients().zero();
    loss_of(*model).backward();
    for (const auto& parameter : model->parameters()) {
      comm.all_reduce(parameter.tensor.grad())->wait();
    }
    for (const auto& range : arenas.parameters().layout().trainable_ranges()) {
      optimizer->update(range, {kLr, 1, step});
    }
  }
  double largest = 0;
  for (const auto& parameter : model->parameters()) {
    auto theirs = at::zeros_like(parameter.tensor.detach());
    comm.broadcast(theirs, 1)->wait();
    const auto difference = (theirs - parameter.tensor.detach()).abs().max();
    largest = std::max(largest, difference.item<double>());
  }
  return largest;
}

// "1.13" of "1.13.0a0+git": each version has a different Gloo, and two versions do not
// understand each other's addresses.
bool has_our_version() {
  const std::string ours = TORCH_VERSION;
  const auto result = run_python({"-c", "import torch; print(torch.__version__)"});
  const auto minor = ours.substr(0, ours.rfind('.') + 1);
  return result.output.rfind(minor, 0) == 0;
}

TEST(ParityMixedGroup, TandemAndPyTorchRanksEndWithTheSameParameters) {
  TANDEM_NEEDS_PYTHON_TORCH();
  if (!has_our_version()) {
    GTEST_SKIP() << python() << " has another PyTorch than " << TORCH_VERSION
                 << "; TANDEM_TEST_PYTHON=PYTHON scripts/test -R MixedGroup";
  }
  const std::string directory = make_private_directory();
  const StoreServer server("unix:" + directory + "/store");
  auto python = std::async(std::launch::async, [&] {
    return run_peer(
        {"join", "--store", server.address(), "--seed", "1", "--steps",
         std::to_string(kSteps)});
  });
  GlooOptions options;
  options.timeout = std::chrono::milliseconds(30'000);
  const auto client =
      std::make_shared<StoreClient>(server.address(), Milliseconds(5'000));
  const auto comm = make_gloo_communicator(client, "mixed", 0, 2, options);
  const double difference = train(*comm);
  const auto result = python.get();
  remove_all(directory);
  EXPECT_TRUE(result.status.ok()) << result.errors;
  printf("largest difference: %.2g\n", difference);
  EXPECT_LE(difference, 1e-14);
}

}  // namespace tandem::mixed_group_test
