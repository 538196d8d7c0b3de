// Ranks with their models on a device, which communicate through main memory, train as
// ranks on the CPU do, for every strategy that devices allow.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/backends/device.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/device/far_device.h"
#include "tests/named.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::far_ranks_test {

std::unique_ptr<Communicator> for_devices(Communicator& comm) {
  return make_device_communicator(comm.split(0));
}

struct Way {
  const char* name;
  int ranks;
  void (*change)(RunOptions& options);
};

using tandem::operator<<;

class FarRanks : public testing::TestWithParam<Way> {
 protected:
  std::vector<RunResult> train(bool far) {
    return on_each_rank("thread", GetParam().ranks, [&](Communicator& comm) {
      RunOptions options;
      GetParam().change(options);
      options.layers = without_dropout(options.layers);
      if (far) {
        options.placement = far_placement(comm.rank());
      }
      const auto group = for_devices(comm);
      return train_small_net(*group, options);
    });
  }
};

TEST_P(FarRanks, EqualRanksOnTheCpu) {
  const auto expected = train(false);
  const auto far = train(true);
  EXPECT_LT(
      relative_difference(far[0].parameters.cpu(), expected[0].parameters), 1e-12);
  for (size_t rank = 0; rank < far.size(); ++rank) {
    ASSERT_EQ(far[rank].sums.defined(), expected[rank].sums.defined());
    if (far[rank].sums.defined()) {
      EXPECT_TRUE(far[rank].sums.cpu().allclose(expected[rank].sums.cpu(), 1e-12))
          << rank;
    }
  }
}

void in_stages(RunOptions& options) {
  options.strategy.kind = StrategyKind::pipeline;
  options.micro_batches = 2;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FarRanks,
    testing::Values(
        Way{"data_parallel", 2, [](RunOptions&) {}},
        Way{"sharded_optimizer", 3,
            [](RunOptions& options) {
              options.strategy.shard = Sharding::optimizer;
              options.optimizer.kind = OptimizerKind::adamw;
              options.optimizer.momentum = 0;
            }},
        Way{"replicated_optimizer", 4,
            [](RunOptions& options) {
              options.strategy.shard = Sharding::none;
              options.strategy.clip_norm = 0.1;
            }},
        Way{"batch_norm_of_all_ranks", 2,
            [](RunOptions& options) {
              options.layers = convnet_bn_layers();
              options.strategy.buffers = BufferSync::sync;
            }},
        Way{"averaging", 3,
            [](RunOptions& options) {
              options.strategy.kind = StrategyKind::averaging;
              options.strategy.average_every = 2;
            }},
        Way{"parameter_server", 3,
            [](RunOptions& options) {
              options.strategy.kind = StrategyKind::parameter_server;
            }},
        Way{"pipeline", 3,
            [](RunOptions& options) {
              in_stages(options);
              options.strategy.stages = 3;
            }},
        Way{"hybrid", 4,
            [](RunOptions& options) {
              in_stages(options);
              options.strategy.stages = 2;
              options.strategy.replicas = 2;
            }}),
    testing::PrintToStringParamName());

// With averages at the end of each epoch, each rank sums its own losses.
TEST(FarRankRun, AveragesAfterEachEpoch) {
  const auto losses_on = [](bool far) {
    return on_each_rank("thread", 3, [&](Communicator& comm) {
      RunConfig config;
      config.model.kind = ModelKind::custom;
      config.training.batch_size = 8;
      config.training.epochs = 2;
      config.exec.executor = ExecutorKind::eager;
      config.strategy.kind = StrategyKind::averaging;
      CustomParts own(make_small_model(without_dropout(small_net_layers())));
      if (far) {
        own.placement = far_placement(comm.rank());
      }
      const auto group = for_devices(comm);
      return train(config, {noise_images(96), noise_images(40)}, *group, std::move(own))
          .test.loss;
    });
  };
  EXPECT_THAT(
      losses_on(true), testing::Each(testing::DoubleNear(losses_on(false)[0], 1e-9)));
}

}  // namespace tandem::far_ranks_test
