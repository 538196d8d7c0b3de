// Runs with images and weights of convolutions in NHWC.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/formats/safetensors.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::channels_last_test {

using testing::HasSubstr;

constexpr double kRounding = 1e-9;

RunConfig short_run(const std::string& out, bool channels_last) {
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.training.batch_size = 12;
  config.training.epochs = 2;
  config.optimizer.kind = OptimizerKind::adam;
  config.optimizer.lr = 0.01;
  config.exec.executor = ExecutorKind::eager;
  config.exec.channels_last = channels_last;
  config.output.out = out;
  return config;
}

Summary train_on(
    RunConfig config, int size, const std::vector<Layer>& layers = small_net_layers()) {
  config.ranks.kind = RankKind::thread;
  config.ranks.nproc = size;
  const DatasetSplits data = {noise_images(96), noise_images(40)};
  return on_each_rank("thread", size, [&](Communicator& comm) {
    return train(config, data, comm, make_small_model(layers));
  })[0];
}

std::vector<NamedTensor> saved_by(const RunConfig& config, const char* file) {
  const auto newest = newest_checkpoint(config.output.out + "/checkpoints");
  return read_safetensors(newest + "/" + file).tensors;
}

void expect_near(const RunConfig& found, const RunConfig& expected, const char* file) {
  const auto of_found = saved_by(found, file);
  const auto of_expected = saved_by(expected, file);
  ASSERT_EQ(of_found.size(), of_expected.size());
  for (size_t i = 0; i < of_found.size(); ++i) {
    EXPECT_EQ(of_found[i].name, of_expected[i].name);
    EXPECT_TRUE(
        of_found[i].tensor.allclose(of_expected[i].tensor, kRounding, kRounding))
        << of_found[i].name;
  }
}

class ChannelsLast : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(
    Ranks, ChannelsLast, testing::Values(1, 2, 3),
    [](const auto& ranks) { return std::to_string(ranks.param); });

// Checkpoints do not depend on the layout.
TEST_P(ChannelsLast, DoesNotChangeResultsAndCheckpoints) {
  const Scratch scratch;
  for (const auto& layers : {small_net_layers(), convnet_bn_layers()}) {
    const auto with = short_run(scratch / "with", true);
    const auto without = short_run(scratch / "without", false);
    const auto found = train_on(with, GetParam(), layers);
    const auto expected = train_on(without, GetParam(), layers);
    EXPECT_NEAR(found.test.loss, expected.test.loss, kRounding * expected.test.loss);
    expect_near(with, without, "model.safetensors");
    expect_near(with, without, "training.safetensors");
    remove_all(with.output.out);
    remove_all(without.output.out);
  }
}

TEST_P(ChannelsLast, ResumesFromEitherLayout) {
  const Scratch scratch;
  const auto whole = train_on(short_run(scratch / "whole", true), GetParam());
  for (const bool begins_with : {true, false}) {
    auto config = short_run(scratch / (begins_with ? "a" : "b"), begins_with);
    config.training.epochs = 1;
    train_on(config, GetParam());
    config.training.epochs = 2;
    config.exec.channels_last = true;
    config.output.resume = "auto";
    const auto found = train_on(config, GetParam());
    EXPECT_NEAR(found.test.loss, whole.test.loss, kRounding * whole.test.loss);
    if (begins_with) {
      EXPECT_EQ(found.parameters_sha256, whole.parameters_sha256);
    }
  }
}

TEST(ChannelsLastRun, PipelinesSendImages) {
  const Scratch scratch;
  const auto run = [&](const char* out, bool channels_last) {
    auto config = short_run(scratch / out, channels_last);
    config.strategy.kind = StrategyKind::pipeline;
    config.strategy.stages = 2;
    config.training.accumulate = 2;
    return train_on(config, 2).test.loss;
  };
  const double expected = run("without", false);
  EXPECT_NEAR(run("with", true), expected, kRounding * expected);
}

std::unique_ptr<Model> float_model() {
  ModelOptions options;
  options.seed = 1;
  return make_layered_model(small_net_layers(), options);
}

TEST(ChannelsLastRun, OtherExecutorsUseTheirOwnLayout) {
  const auto comm = make_single_communicator();
  const DatasetSplits data = {noise_images(24), noise_images(12)};
  auto config = short_run("", true);
  config.exec.executor = ExecutorKind::automatic;
  testing::internal::CaptureStdout();
  const auto found = train(config, data, *comm, float_model());
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      HasSubstr("compiled does not run this model: some parameters are not contiguous, "
                "as with --channels-last"));
  EXPECT_EQ(found.executor, ExecutorKind::eager);
  config.exec.channels_last = false;
  EXPECT_EQ(train(config, data, *comm, float_model()).executor, ExecutorKind::compiled);
  config.exec.channels_last = true;
  config.exec.executor = ExecutorKind::compiled;
  expect_error<ConfigError>(
      [&] { train(config, data, *comm, float_model()); },
      {"channels-last", "use --executor eager"});
}

}  // namespace tandem::channels_last_test
