#include "tandem/parallel/distributed_data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem {
namespace {

using testing::Each;
using testing::HasSubstr;

// A loop of the user's own, without torch::nn.
struct OwnModel {
  at::Tensor weight = at::arange(6, at::kDouble).view({3, 2}).set_requires_grad(true);
  at::Tensor bias = at::zeros({2}, at::kDouble).set_requires_grad(true);
  at::Tensor unused = at::zeros({5}, at::kDouble).set_requires_grad(true);
  at::Tensor count = at::zeros({}, at::kLong);

  std::vector<NamedTensor> parameters() const {
    return {{"weight", weight}, {"bias", bias}, {"unused", unused}};
  }
  std::vector<NamedTensor> buffers() const {
    return {{"count", count}};
  }
  // d/d weight is x in each column, d/d bias 1.
  void backward(double x) const {
    const auto input = at::full({1, 3}, x, at::kDouble);
    (input.matmul(weight) + bias).sum().backward();
  }
};

DistributedDataParallelOptions small_buckets() {
  DistributedDataParallelOptions options;
  options.bucket_bytes = 1;
  return options;
}

TEST(DistributedDataParallel, BackwardEndsWithTheMeanOfAllRanksGradients) {
  for (int size = 1; size <= 4; ++size) {
    const auto gradients = on_each_rank("thread", size, [](Communicator& comm) {
      OwnModel model;
      DistributedDataParallel ddp(
          model.parameters(), model.buffers(), comm, small_buckets());
      model.backward(1 << comm.rank());
      TANDEM_CHECK(
          model.unused.grad().eq(0).all().item<bool>(), "unused has a gradient");
      TANDEM_CHECK(model.bias.grad().eq(1).all().item<bool>(), "not the mean");
      return model.weight.grad().clone();
    });
    const double mean = ((1 << size) - 1) / static_cast<double>(size);
    for (const auto& gradient : gradients) {
      EXPECT_TRUE(gradient.equal(at::full({3, 2}, mean, at::kDouble))) << size;
    }
  }
}

TEST(DistributedDataParallel, StartsWithRank0sParametersAndBuffers) {
  const auto sums = on_each_rank("thread", 3, [](Communicator& comm) {
    OwnModel model;
    model.weight.detach().add_(comm.rank());
    model.count.fill_(5 + comm.rank());
    DistributedDataParallel ddp(model.parameters(), model.buffers(), comm);
    return model.weight.sum().item<double>() + 100 * model.count.item<double>();
  });
  EXPECT_THAT(sums, Each(515));
}

TEST(DistributedDataParallel, WithoutSyncGradientsStayLocalUntilTheNextSyncedOne) {
  const auto gradients = on_each_rank("thread", 2, [](Communicator& comm) {
    OwnModel model;
    DistributedDataParallel ddp(
        model.parameters(), model.buffers(), comm, small_buckets());
    const double mine = comm.rank() == 0 ? 1 : 10;
    ddp.set_sync(false);
    model.backward(mine);
    std::vector<double> seen = {model.weight.grad()[0][0].item<double>()};
    ddp.set_sync(true);
    model.backward(mine * 3);
    seen.push_back(model.weight.grad()[0][0].item<double>());
    return seen;
  });
  EXPECT_EQ(gradients[0], (std::vector<double>{1, 22}));
  EXPECT_EQ(gradients[1], (std::vector<double>{10, 22}));
}

TEST(DistributedDataParallel, GradientsMayBeZeroedOrUnsetBetweenSteps) {
  for (const bool unset : {false, true}) {
    const auto gradients = on_each_rank("thread", 2, [&](Communicator& comm) {
      OwnModel model;
      DistributedDataParallel ddp(
          model.parameters(), model.buffers(), comm, small_buckets());
      std::vector<double> seen;
      for (const double x : {1.0, 5.0}) {
        for (auto& tensor : {model.weight, model.bias, model.unused}) {
          if (unset) {
            at::Tensor(tensor).mutable_grad() = at::Tensor();
          } else {
            tensor.grad().zero_();
          }
        }
        model.backward(x + comm.rank());
        seen.push_back(model.weight.grad()[2][1].item<double>());
        seen.push_back(model.bias.grad()[1].item<double>());
        ddp.arenas().check_attached();
      }
      return seen;
    });
    EXPECT_THAT(gradients, Each(std::vector<double>{1.5, 1, 5.5, 1})) << unset;
  }
}

TEST(DistributedDataParallel, ModelsThatDifferAreRefused) {
  const auto messages = on_each_rank("thread", 2, [](Communicator& comm) {
    OwnModel model;
    if (comm.rank() == 1) {
      model.bias = at::zeros({3}, at::kDouble).set_requires_grad(true);
    }
    return error_of<ConfigError>(
        [&] { DistributedDataParallel(model.parameters(), model.buffers(), comm); });
  });
  EXPECT_THAT(messages, Each(HasSubstr("the models")));
}

}  // namespace
}  // namespace tandem
