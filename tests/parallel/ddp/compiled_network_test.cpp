// Compiled and recomputed networks whose gradients DistributedDataParallel averages.

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "tandem/exec/api/checkpoint.h"
#include "tandem/exec/api/compile.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tests/comm/group.h"

namespace tandem::compiled_network_test {

at::Tensor waves(const std::vector<int64_t>& shape, double phase) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return at::linspace(0, 50, count).add(phase).sin().view(shape);
}

enum class Forward { plain, compiled, recomputed };

// Returns the parameters and buffers after three steps on this rank's samples.
std::vector<NamedTensor> trained(Forward forward, Communicator& comm) {
  torch::nn::Sequential net(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)),
      torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::Flatten(),
      torch::nn::Linear(8 * 36, 4));
  for (auto& parameter : net->parameters()) {
    // Thread ranks share LibTorch's generator.
    parameter.set_data(waves(parameter.sizes().vec(), 1) * 0.2);
  }
  DistributedDataParallelOptions options;
  options.bucket_bytes = 1;
  DistributedDataParallel ddp(*net, comm, options);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto fast = compile(net, waves({2, 3, 6, 6}, 0));
  CheckpointOptions checkpointed;
  // Thread ranks share LibTorch's generator.
  checkpointed.preserve_rng_state = false;
  for (int step = 0; step < 3; ++step) {
    const auto x = waves({2, 3, 6, 6}, 10 * step + comm.rank());
    optimizer.zero_grad();
    at::cross_entropy_loss(
        forward == Forward::compiled     ? fast(x)
        : forward == Forward::recomputed ? checkpoint(checkpointed, net, x)
                                         : net->forward(x),
        at::arange(2).add(comm.rank()).remainder(4))
        .backward();
    optimizer.step();
  }
  ddp.check();
  return module_state(*net);
}

TEST(CompiledNetwork, TrainsOverRanksLikeTheNetwork) {
  for (int size = 1; size <= 4; ++size) {
    (void)on_each_rank("thread", size, [](Communicator& comm) {
      const auto found = trained(Forward::compiled, comm);
      const auto wanted = trained(Forward::plain, comm);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(at::allclose(found[i].tensor, wanted[i].tensor, 1e-4, 1e-5))
            << found[i].name;
      }
      return 0;
    });
  }
}

TEST(CheckpointedNetwork, TrainsOverRanksWithTheBitsOfTheNetwork) {
  for (const int size : {1, 3}) {
    (void)on_each_rank("thread", size, [](Communicator& comm) {
      const auto found = trained(Forward::recomputed, comm);
      const auto wanted = trained(Forward::plain, comm);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(found[i].tensor.equal(wanted[i].tensor)) << found[i].name;
      }
      return 0;
    });
  }
}

}  // namespace tandem::compiled_network_test
