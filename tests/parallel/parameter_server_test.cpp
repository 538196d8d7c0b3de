// The parameter server, except for server_identity_test.cpp.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/train/assembly.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/slow_worker.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::parameter_server_test {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

RunConfig server_config() {
  RunConfig config = thread_config(ModelKind::custom, 3);
  config.training.epochs = 2;
  config.optimizer.momentum = 0.9;
  config.optimizer.lr = 0.05;
  config.strategy.kind = StrategyKind::parameter_server;
  return config;
}

DatasetSplits small_data() {
  return {noise_images(64), noise_images(10)};
}

std::vector<Summary> train_on(int size, const RunConfig& config) {
  const auto data = small_data();
  return on_each_rank("thread", size, [&](Communicator& comm) {
    return train(config, data, comm, make_slow_model(std::chrono::milliseconds(0)));
  });
}

TEST(ParameterServer, StalenessReachesButNeverExceedsTheBound) {
  constexpr int64_t kSteps = 25;
  for (const int64_t bound : {0, 1, 3}) {
    const auto ranks = on_each_rank("thread", 4, [&](Communicator& comm) {
      return run_with_slow_worker(comm, bound, kSteps);
    });
    const auto& staleness = ranks[0].staleness;
    EXPECT_EQ(staleness.size(), 3u * kSteps);
    EXPECT_THAT(staleness, Each(AllOf(Ge(0), Le(bound))));
    EXPECT_EQ(*std::max_element(staleness.begin(), staleness.end()), bound);
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank.sha256, ranks[0].sha256);
    }
  }
}

TEST(ParameterServer, AsynchronousServerReportsTheSamplesOfAllWorkers) {
  const auto ranks = on_each_rank("thread", 3, [&](Communicator& comm) {
    return run_with_slow_worker(comm, 2, 10);
  });
  EXPECT_EQ(ranks[0].sums[2].item<double>(), 2 * 10 * 4);
  EXPECT_EQ(ranks[1].sums[2].item<double>(), 10 * 4);
  EXPECT_NEAR(
      ranks[0].sums[0].item<double>(),
      (ranks[1].sums + ranks[2].sums)[0].item<double>(), 1e-9);
}

TEST(ParameterServer, OnlyTheServerHasOptimizerState) {
  for (const bool asynchronous : {false, true}) {
    auto config = server_config();
    config.strategy.server_updates =
        asynchronous ? ServerUpdates::asynchronous : ServerUpdates::synchronous;
    config.optimizer.kind = OptimizerKind::adam;
    config.optimizer.momentum = 0;
    const auto data = small_data();
    const auto elements = on_each_rank("thread", 3, [&](Communicator& comm) {
      const auto parts = assemble(
          config, data.train, comm, make_slow_model(std::chrono::milliseconds(0)));
      int64_t count = 0;
      for (const Arena* arena : parts.optimizer->state()) {
        for (size_t i = 0; i < arena->layout().segments().size(); ++i) {
          count += arena->segment(static_cast<int64_t>(i)).numel();
        }
      }
      return count;
    });
    EXPECT_GE(elements[0], 2 * 320);
    EXPECT_EQ(elements[1], 0);
    EXPECT_EQ(elements[2], 0);
  }
}

TEST(ParameterServer, HasTheBitsOfDataParallelWithOneRankLess) {
  auto config = server_config();
  const auto server = train_on(3, config);
  config.strategy.kind = StrategyKind::data_parallel;
  const auto replicas = train_on(2, config);
  for (const auto& rank : server) {
    EXPECT_EQ(rank.parameters_sha256, replicas[0].parameters_sha256);
    EXPECT_EQ(rank.test.correct, replicas[0].test.correct);
    EXPECT_EQ(rank.test.count, 10);
  }
}

TEST(ParameterServer, ResumesFromAnyStrategysCheckpoint) {
  const Scratch scratch;
  auto config = server_config();
  const auto whole = train_on(3, config);
  config.output.out = scratch / "server";
  config.training.epochs = 1;
  train_on(3, config);
  config.training.epochs = 2;
  config.output.resume = "auto";
  EXPECT_EQ(train_on(3, config)[1].parameters_sha256, whole[0].parameters_sha256);
  // Data parallel continues the server's run, with its momentum.
  config.output.resume = config.output.out + "/checkpoints/step-00000004";
  config.output.out = scratch / "replicas";
  config.strategy.kind = StrategyKind::data_parallel;
  EXPECT_EQ(train_on(2, config)[0].parameters_sha256, whole[0].parameters_sha256);
}

TEST(ParameterServer, AsynchronousRunsEndWithEqualParametersOnAllRanks) {
  auto config = server_config();
  config.strategy.server_updates = ServerUpdates::asynchronous;
  config.optimizer.kind = OptimizerKind::adam;
  config.optimizer.momentum = 0;
  config.strategy.max_staleness = 1;
  const auto ranks = train_on(4, config);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.parameters_sha256, ranks[0].parameters_sha256);
    EXPECT_EQ(rank.test.count, 10);
  }
}

TEST(ParameterServer, ServerGetsItsBuffersFromTheWorkers) {
  for (const auto buffers : {BufferSync::broadcast, BufferSync::average}) {
    const auto values = on_each_rank("thread", 3, [&](Communicator& comm) {
      StrategyOptions options;
      options.kind = StrategyKind::parameter_server;
      options.buffers = buffers;
      auto weight = at::full({2}, 1.0, at::kDouble).set_requires_grad(true);
      const auto buffer = at::full({3}, 1.0, at::kDouble);
      Replica replica(
          make_function_model(
              [](const at::Tensor& x) { return x; }, {{"weight", weight}},
              {{"buffer", buffer}}),
          comm, options, {});
      replica.strategy->start();
      // The workers' values are 11 and 13.
      buffer.fill_(9 + 2 * comm.rank());
      replica.strategy->before_evaluation();
      return buffer[2].item<double>();
    });
    EXPECT_THAT(values, Each(buffers == BufferSync::average ? 12 : 11));
  }
}

TEST(ParameterServer, RejectsUnsupportedOptions) {
  const auto refused = [](int size, auto change) {
    auto config = server_config();
    change(config);
    return error_of<ConfigError>([&] { train_on(size, config); });
  };
  EXPECT_THAT(
      refused(1, [](RunConfig& c) { c.ranks.nproc = 1; }), HasSubstr("--nproc 2"));
  EXPECT_THAT(
      refused(2, [](RunConfig& c) { c.strategy.buffers = BufferSync::off; }),
      HasSubstr("--buffers"));
  EXPECT_THAT(
      refused(2, [](RunConfig& c) { c.strategy.comm_hook = CommHook::fp16; }),
      HasSubstr("--comm-hook"));
}

TEST(ParameterServer, FailedRankEndsTheOthers) {
  auto config = server_config();
  const auto data = small_data();
  for (const int failing : {0, 2}) {
    expect_error<Error>(
        [&] {
          run_ranks(3, [&](Communicator& comm) {
            auto parts = assemble(
                config, data.train, comm,
                make_slow_model(std::chrono::milliseconds(0)));
            parts.strategy->start();
            if (comm.rank() == failing) {
              throw Error("[test] this rank stops");
            }
            StepContext context;
            parts.strategy->train_step({}, context);
            parts.strategy->train_step({}, context);
          });
        },
        {"this rank stops"});
  }
}

}  // namespace tandem::parameter_server_test
