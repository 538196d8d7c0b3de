// Ranks with different numbers of batches in a custom loop.

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "tandem/parallel/ddp/sharded_optimizer.h"
#include "tests/comm/group.h"

namespace tandem::join_test {

struct OwnModel {
  at::Tensor weight = at::ones({5, 7}, at::kDouble).set_requires_grad(true);
  at::Tensor bias = at::ones({7}, at::kDouble).set_requires_grad(true);
  at::Tensor count = at::zeros({}, at::kDouble);

  at::Tensor loss(double x) const {
    count.add_(1);
    return (at::full({2, 5}, x, at::kDouble).matmul(weight * weight) + bias).sum();
  }
};

DistributedDataParallelOptions joining(Sharding shard) {
  DistributedDataParallelOptions options;
  options.bucket_bytes = 100;
  options.shard = shard;
  options.join = true;
  return options;
}

// Trains for two epochs. Rank r has counts[r] batches in each. Returns the weights.
at::Tensor train(Communicator& comm, Sharding shard, const std::vector<int>& counts) {
  const OwnModel model;
  DistributedDataParallel ddp(
      {{"weight", model.weight}, {"bias", model.bias}}, {{"count", model.count}}, comm,
      joining(shard));
  ShardedOptimizer<torch::optim::SGD> optimizer(
      ddp, torch::optim::SGDOptions(0.01).momentum(0.5));
  const auto step = [&] {
    ddp.clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < counts[static_cast<size_t>(comm.rank())]; ++i) {
      ddp.pass([&] { model.loss(0.1 * (1 + i) + comm.rank()).backward(); });
      step();
    }
    ddp.join(step);
  }
  ddp.check();
  ddp.gather_parameters();
  // All ranks have the buffers of a rank that had the most batches.
  EXPECT_EQ(
      model.count.item<double>(), 2 * *std::max_element(counts.begin(), counts.end()));
  return model.weight.detach().clone();
}

// The same training on one process: the mean of the gradients over all ranks, of which
// those without a batch count as zero.
at::Tensor reference(const std::vector<int>& counts) {
  const OwnModel model;
  const auto comm = make_single_communicator();
  DistributedDataParallel ddp(
      {{"weight", model.weight}, {"bias", model.bias}}, {}, *comm);
  torch::optim::SGD optimizer(
      {model.weight, model.bias}, torch::optim::SGDOptions(0.01).momentum(0.5));
  const int steps = *std::max_element(counts.begin(), counts.end());
  for (int step = 0; step < 2 * steps; ++step) {
    ddp.zero_grad();
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      if (step % steps < counts[rank]) {
        loss = loss + model.loss(0.1 * (1 + step % steps) + static_cast<double>(rank));
      }
    }
    (loss / static_cast<double>(counts.size())).backward();
    ddp.clip_grad_norm(1);
    optimizer.step();
  }
  return model.weight.detach().clone();
}

TEST(Join, RanksWithoutBatchesContributeZeros) {
  for (const std::vector<int>& counts :
       {std::vector<int>{4, 2}, {1, 3, 2}, {3, 1, 1}, {2, 2, 2}, {1, 5, 2, 5}}) {
    const auto expected = reference(counts);
    for (const auto shard :
         {Sharding::none, Sharding::optimizer, Sharding::gradients,
          Sharding::parameters}) {
      for (const char* backend : {"thread", "shm"}) {
        SCOPED_TRACE(std::string(name_of(shard)) + " over " + backend);
        const auto weights = on_each_rank(
            backend, static_cast<int>(counts.size()),
            [&](Communicator& comm) { return train(comm, shard, counts); });
        for (const auto& weight : weights) {
          EXPECT_TRUE(weight.equal(weights[0]));
          EXPECT_LE((weight - expected).abs().max().item<double>(), 1e-12);
        }
      }
    }
  }
}

TEST(Join, ARankMayHaveNoBatchAtAll) {
  const auto weights = on_each_rank("thread", 3, [](Communicator& comm) {
    return train(comm, Sharding::optimizer, {2, 0, 1});
  });
  for (const auto& weight : weights) {
    EXPECT_LE((weight - reference({2, 0, 1})).abs().max().item<double>(), 1e-12);
  }
}

}  // namespace tandem::join_test
