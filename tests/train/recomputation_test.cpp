// Runs with --recompute, against the same runs without it.

#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/train/assembly.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"
#include "tests/train/thread_run.h"

namespace tandem::recomputation_test {

using testing::HasSubstr;

// An epoch of steps with two micro-batches each.
RunConfig small_run(ModelKind model, int64_t nproc) {
  RunConfig config = thread_config(model, nproc);
  config.optimizer.momentum = 0.9;
  config.training.accumulate = 2;
  config.exec.executor = ExecutorKind::eager;
  return config;
}

const DatasetSplits& digits() {
  static const DatasetSplits data = load_dataset("digits", 40);
  return data;
}

void expect_equal_runs(
    int size, RunConfig config, const std::string& recompute,
    const std::string& memory = "") {
  const auto wanted = train_on_threads(size, config, digits());
  config.exec.recompute = recompute;
  config.exec.memory = memory;
  const auto found = train_on_threads(size, config, digits());
  for (size_t rank = 0; rank < wanted.size(); ++rank) {
    EXPECT_EQ(found[rank].parameters_sha256, wanted[rank].parameters_sha256) << rank;
    EXPECT_EQ(found[rank].test.loss, wanted[rank].test.loss) << rank;
  }
}

// `net` has dropout, and `convnet_bn` has batch norm, whose running statistics the test
// loss uses.
TEST(Recomputation, HasTheBitsOfOtherRunsWithEveryKindOfSharding) {
  for (const ModelKind model : {ModelKind::net, ModelKind::convnet_bn}) {
    for (const auto shard :
         {Sharding::none, Sharding::optimizer, Sharding::gradients,
          Sharding::parameters}) {
      SCOPED_TRACE(std::string(name_of(shard)) + " " + name_of(model));
      auto config = small_run(model, 3);
      config.strategy.shard = shard;
      expect_equal_runs(3, config, "every:1");
    }
  }
}

TEST(Recomputation, HasTheBitsOfOtherRunsWithEveryStrategy) {
  for (const auto strategy :
       {StrategyKind::sequential, StrategyKind::averaging, StrategyKind::pipeline,
        StrategyKind::parameter_server}) {
    SCOPED_TRACE(name_of(strategy));
    const int size = strategy == StrategyKind::sequential ? 1 : 3;
    auto config = small_run(ModelKind::convnet_bn, size);
    config.strategy.kind = strategy;
    expect_equal_runs(size, config, "layer?.*");
  }
}

// A chain of layers has other kernels, so both runs recompute layers.
TEST(Recomputation, HasTheBitsOfOtherCompiledRuns) {
  for (const int size : {1, 3}) {
    auto config = small_run(ModelKind::convnet_bn, size);
    config.exec.executor = ExecutorKind::compiled;
    config.exec.recompute = "layer2.*";
    expect_equal_runs(size, config, "every:1");
  }
}

TEST(Recomputation, HasTheBitsOfOtherRunsWithFrozenLayersAndSyncedStatistics) {
  auto config = small_run(ModelKind::convnet_bn, 3);
  config.strategy.buffers = BufferSync::sync;
  expect_equal_runs(3, config, "every:1");
  config.strategy.buffers = BufferSync::broadcast;
  config.model.freeze = "layer1.*";
  expect_equal_runs(3, config, "every:1");
}

TEST(Recomputation, KeepsLessInEachStageOfAPipeline) {
  auto config = small_run(ModelKind::net, 2);
  config.strategy.kind = StrategyKind::pipeline;
  config.strategy.cut = "fc1";
  const auto bytes = [&] {
    return train_on_threads(2, config, digits())[0]
        .measurements.at("stage_peak_activation_bytes")
        .at(0);
  };
  const double without = bytes();
  config.exec.recompute = "conv*";
  EXPECT_LT(bytes(), without / 2);
}

std::string error_of_run(
    const RunConfig& config, std::unique_ptr<Model> model = nullptr) {
  const auto comm = make_single_communicator();
  return error_of<ConfigError>(
      [&] { (void)assemble(config, digits().train, *comm, std::move(model)); });
}

TEST(Recomputation, RefusesWhatItCannotDo) {
  auto config = small_run(ModelKind::convnet_bn, 1);
  config.exec.recompute = "layr1.*";
  EXPECT_THAT(
      error_of_run(config),
      HasSubstr("recompute has the pattern 'layr1.*', which matches no layer, did you "
                "mean 'layer1.*'?; change --recompute"));
  config.exec.recompute = "auto";
  config.exec.memory = "1K";
  EXPECT_THAT(
      error_of_run(config),
      HasSubstr("M or more for the kept values of 8 samples; raise --memory"));
  config.exec = ExecOptions();
  config.exec.recompute = "every:2";
  config.model.kind = ModelKind::custom;
  // The number of calls decides, so tracing finds no graph.
  const auto weight = waves({784, 10}).to(at::kFloat).set_requires_grad(true);
  const auto forward = [weight, calls = 0](const at::Tensor& x) mutable {
    const auto y = x.flatten(1).matmul(weight);
    return ++calls % 2 == 0 ? y.tanh() : y;
  };
  EXPECT_THAT(
      error_of_run(config, make_function_model(forward, {{"weight", weight}})),
      HasSubstr("recompute is 'every:2', but the model is only a function"));
}

TEST(Recomputation, ChoosesSegmentsByMemory) {
  auto config = small_run(ModelKind::convnet_bn, 1);
  expect_equal_runs(1, config, "auto", "1M");
}

}  // namespace tandem::recomputation_test
