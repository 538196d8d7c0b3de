// Runs in fp16: Apex's O1 and O2, with its dynamic loss scale.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/load_dataset.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/train/thread_run.h"

namespace tandem::fp16_test {

RunConfig fp16_config() {
  RunConfig config = thread_config(ModelKind::convnet_bn, 1);
  config.training.epochs = 3;
  config.optimizer.lr = 0.002;
  config.exec.precision = Precision::fp16;
  config.exec.loss_scale = ExecOptions::kDynamicScale;
  return config;
}

std::vector<Summary> train_ranks(RunConfig config, int ranks, CustomParts own = {}) {
  config.ranks.nproc = ranks;
  const auto data = load_dataset("digits", 192);
  return on_each_rank("thread", ranks, [&](Communicator& comm) {
    CustomParts mine;
    mine.loss = own.loss;
    return train(config, data, comm, std::move(mine));
  });
}

TEST(Fp16, TrainsNearlyAsFloat32) {
  auto config = fp16_config();
  config.exec.precision = Precision::fp32;
  const auto full = train_ranks(config, 3);
  config.exec.precision = Precision::fp16;
  for (const auto level : {OptLevel::o1, OptLevel::o2}) {
    config.exec.opt_level = level;
    const auto half = train_ranks(config, 3);
    EXPECT_EQ(half[0].skipped_steps, 0);
    EXPECT_NEAR(half[0].test.loss, full[0].test.loss, 0.02 * full[0].test.loss);
    EXPECT_NE(half[0].parameters_sha256, full[0].parameters_sha256);
    EXPECT_EQ(half[2].parameters_sha256, half[0].parameters_sha256);
  }
}

// Gradients of a sum of losses overflow float16 with a scale of 65536.
TEST(Fp16, OverflowSkipsStepsUntilTheScaleIsSmallEnough) {
  auto config = fp16_config();
  config.model.reduction = Reduction::sum;
  config.optimizer.lr = 0.0001;
  const auto ranks = train_ranks(config, 4);
  EXPECT_GT(ranks[0].skipped_steps, 0);
  EXPECT_LT(ranks[0].skipped_steps, ranks[0].steps);
  EXPECT_EQ(
      ranks[0].loss_scale,
      65536 / std::pow(2.0, static_cast<double>(ranks[0].skipped_steps)));
  EXPECT_LT(ranks[0].test.loss, 2.3);
  EXPECT_EQ(ranks[3].parameters_sha256, ranks[0].parameters_sha256);
  // In float32 the same gradients do not overflow.
  config.exec.precision = Precision::fp32;
  EXPECT_EQ(train_ranks(config, 4)[0].skipped_steps, 0);
}

TEST(Fp16, OverflowInEveryStepIsAnError) {
  CustomParts own;
  // The loss is finite, but the gradient of a root at 0 is infinite.
  own.loss = [](const at::Tensor& output, const at::Tensor&) {
    return (output * 0).abs().sqrt().sum();
  };
  auto config = fp16_config();
  config.training.epochs = 20;
  expect_error<Error>(
      [&] { train_ranks(config, 2, std::move(own)); },
      {"gradients are not finite at any loss scale", "--precision fp32"});
}

TEST(Fp16, RefusesAModelThatIsNoSequenceOfLayers) {
  auto config = fp16_config();
  config.model.kind = ModelKind::custom;
  auto weight = at::zeros({64, 5}).set_requires_grad(true);
  const DatasetSplits data = {noise_images(64), noise_images(10)};
  const auto comm = make_single_communicator();
  expect_error<ConfigError>(
      [&] {
        train(
            config, data, *comm,
            make_function_model(
                [&](const at::Tensor& x) { return x.flatten(1).matmul(weight); },
                {{"weight", weight}}));
      },
      {"use --precision bf16 or fp32"});
}

}  // namespace tandem::fp16_test
