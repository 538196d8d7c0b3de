// Runs with products in bfloat16, and runs with gradients in float16, which overflow
// with the first loss scale, 65536.

#include <ATen/ops/log_softmax.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/load_dataset.h"
#include "tandem/formats/safetensors.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::mixed_precision_test {

using testing::HasSubstr;

using Forward =
    std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)>;

std::unique_ptr<Model> linear_model(const Forward& forward) {
  auto weight = (at::arange(320, at::kFloat).view({64, 5}) / 320).sin() / 10;
  weight.set_requires_grad(true);
  return make_function_model(
      [=](const at::Tensor& x) { return forward(x.flatten(1), weight); },
      {{"weight", weight}});
}

// The gradient of the weight passes through float16, whose largest number is 65504.
at::Tensor with_half_gradients(const at::Tensor& x, const at::Tensor& weight) {
  return 10 * x.matmul(weight.to(at::kHalf).to(at::kFloat));
}

RunConfig small_config() {
  RunConfig config = thread_config(ModelKind::custom, 2);
  config.training.epochs = 3;
  config.optimizer.momentum = 0.9;
  config.optimizer.lr = 0.001;
  return config;
}

std::vector<Summary> train_on_two_ranks(
    const RunConfig& config, const Forward& forward) {
  const DatasetSplits data = {noise_images(64), noise_images(10)};
  return on_each_rank("thread", 2, [&](Communicator& comm) {
    return train(config, data, comm, linear_model(forward));
  });
}

TEST(LossScale, ShrinksUntilGradientsFit) {
  auto config = small_config();
  const auto unscaled = train_on_two_ranks(config, with_half_gradients);
  EXPECT_EQ(unscaled[0].skipped_steps, 0);
  EXPECT_EQ(unscaled[0].loss_scale, 1);
  config.exec.loss_scale = ExecOptions::kDynamicScale;
  const auto ranks = train_on_two_ranks(config, with_half_gradients);
  const auto& summary = ranks[0];
  EXPECT_GT(summary.skipped_steps, 0);
  EXPECT_LT(summary.skipped_steps, summary.steps);
  EXPECT_EQ(
      summary.loss_scale,
      65536 / std::pow(2.0, static_cast<double>(summary.skipped_steps)));
  EXPECT_TRUE(std::isfinite(summary.test.loss));
  EXPECT_EQ(ranks[1].parameters_sha256, summary.parameters_sha256);
  EXPECT_EQ(ranks[1].skipped_steps, summary.skipped_steps);
  EXPECT_NE(summary.parameters_sha256, unscaled[0].parameters_sha256);
}

TEST(LossScale, AFixedScaleThatIsTooLargeSkipsStepsAndWarns) {
  auto config = small_config();
  config.exec.loss_scale = 1e9;
  testing::internal::CaptureStderr();
  const auto ranks = train_on_two_ranks(config, with_half_gradients);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("steps were skipped because gradients overflowed; lower --loss-scale"));
  EXPECT_EQ(ranks[0].skipped_steps, ranks[0].steps);
}

// A scale that is a power of 2 changes no bits of numbers in range.
TEST(LossScale, WithoutOverflowChangesNoBit) {
  const Forward plain = [](const at::Tensor& x, const at::Tensor& weight) {
    return x.matmul(weight);
  };
  auto config = small_config();
  const auto unscaled = train_on_two_ranks(config, plain);
  for (const double scale : {ExecOptions::kDynamicScale, 8.0}) {
    config.exec.loss_scale = scale;
    const auto scaled = train_on_two_ranks(config, plain);
    EXPECT_EQ(scaled[0].parameters_sha256, unscaled[0].parameters_sha256);
    EXPECT_EQ(scaled[0].skipped_steps, 0);
  }
  // Clipping uses gradients without the scale.
  config.strategy.clip_norm = 0.1;
  const auto clipped = train_on_two_ranks(config, plain);
  config.exec.loss_scale = ExecOptions::kNoScale;
  EXPECT_EQ(
      clipped[0].parameters_sha256,
      train_on_two_ranks(config, plain)[0].parameters_sha256);
}

TEST(LossScale, AResumedRunHasTheSameBits) {
  const Scratch scratch;
  auto config = small_config();
  config.exec.loss_scale = ExecOptions::kDynamicScale;
  config.output.checkpoint_every = 1;
  config.output.keep_checkpoints = 0;
  config.output.out = scratch / "whole";
  const auto whole = train_on_two_ranks(config, with_half_gradients);
  ASSERT_GT(whole[0].skipped_steps, 1);
  for (const std::string step : {"00000001", "00000002", "00000005"}) {
    config.output.resume = scratch / "whole" + "/checkpoints/step-" + step;
    config.output.out = scratch / step;
    const auto resumed = train_on_two_ranks(config, with_half_gradients);
    EXPECT_EQ(resumed[0].parameters_sha256, whole[0].parameters_sha256) << step;
    EXPECT_EQ(resumed[0].skipped_steps, whole[0].skipped_steps) << step;
    EXPECT_EQ(resumed[0].loss_scale, whole[0].loss_scale) << step;
  }
}

TEST(LossScale, ALossThatIsNotFiniteStillStopsTheRun) {
  auto config = small_config();
  config.exec.loss_scale = ExecOptions::kDynamicScale;
  expect_error<Error>(
      [&] {
        train_on_two_ranks(config, [](const at::Tensor& x, const at::Tensor& weight) {
          return x.matmul(weight) * std::nan("");
        });
      },
      {"the loss is not finite at step 1"});
}

TEST(Bf16, AppliesOnlyToProductsInTraining) {
  auto config = small_config();
  config.exec.precision = Precision::bf16;
  std::vector<at::ScalarType> training;
  std::vector<at::ScalarType> evaluation;
  const DatasetSplits data = {noise_images(64), noise_images(10)};
  const auto comm = make_single_communicator();
  train(
      config, data, *comm,
      linear_model([&](const at::Tensor& x, const at::Tensor& weight) {
        EXPECT_EQ(x.scalar_type(), at::kFloat);
        const auto y = x.matmul(weight);
        (weight.requires_grad() && y.requires_grad() ? training : evaluation)
            .push_back(y.scalar_type());
        return y;
      }));
  ASSERT_EQ(training.size(), 24u);
  ASSERT_EQ(evaluation.size(), 3u);
  EXPECT_THAT(training, testing::Each(at::kBFloat16));
  EXPECT_THAT(evaluation, testing::Each(at::kFloat));
}

TEST(Bf16, CheckpointsStayFloat32) {
  const Scratch scratch;
  RunConfig config = small_config();
  config.model.kind = ModelKind::simplenet;
  config.exec.precision = Precision::bf16;
  config.exec.loss_scale = ExecOptions::kDynamicScale;
  config.output.out = scratch / "run";
  config.ranks.nproc = 1;
  config.training.epochs = 1;
  const auto comm = make_single_communicator();
  const auto summary = train(config, load_dataset("digits", 32), *comm);
  const auto folder = config.output.out + "/checkpoints/step-00000004";
  for (const auto& entry : read_safetensors(folder + "/model.safetensors").tensors) {
    EXPECT_EQ(entry.tensor.scalar_type(), at::kFloat) << entry.name;
  }
  const auto training = read_safetensors(folder + "/training.safetensors").tensors;
  EXPECT_EQ(training.size(), 5u);  // momentum of weight and bias, and the scaler's
}

}  // namespace tandem::mixed_precision_test
