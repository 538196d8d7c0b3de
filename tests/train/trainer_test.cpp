// Checks of train(), with models that misbehave as a user's model may.

#include "tandem/train/trainer.h"

#include <ATen/ops/log_softmax.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::trainer_test {

// Changes the output of a step, or the weight, on one rank.
using Mischief = std::function<at::Tensor(
    int64_t call, const at::Tensor& output, at::Tensor& weight)>;

std::unique_ptr<Model> linear_model(const Mischief& mischief = {}) {
  auto weight = (at::arange(320, at::kDouble).view({64, 5}) / 320).sin() / 10;
  weight.set_requires_grad(true);
  auto calls = std::make_shared<int64_t>(0);
  return make_function_model(
      [=](const at::Tensor& x) mutable {
        auto output = x.flatten(1).to(at::kDouble).matmul(weight).log_softmax(1);
        ++*calls;
        return mischief ? mischief(*calls, output, weight) : output;
      },
      {{"weight", weight}});
}

RunConfig small_config() {
  RunConfig config = thread_config(ModelKind::custom, 2);
  config.training.epochs = 2;
  config.optimizer.lr = 0.1;
  return config;
}

DatasetSplits small_data(int64_t size = 64) {
  return {noise_images(size), noise_images(10)};
}

// The model of rank 1 misbehaves.
std::vector<std::string> hashes_of(
    const RunConfig& config, const Mischief& mischief, int64_t size = 64) {
  const auto data = small_data(size);
  return on_each_rank("thread", 2, [&](Communicator& comm) {
    auto model = linear_model(comm.rank() == 1 ? mischief : Mischief());
    return train(config, data, comm, std::move(model)).parameters_sha256;
  });
}

at::Tensor nudge_at_call_3(int64_t call, const at::Tensor& output, at::Tensor& weight) {
  const c10::AutoGradMode no_grad(false);
  if (call == 3) {
    weight.detach().view(-1)[7].add_(1e-9);
  }
  return output;
}

TEST(Trainer, ReplicasThatDriftAreAnError) {
  expect_error<Error>(
      [] { hashes_of(small_config(), nudge_at_call_3); },
      {"parameter 'weight' differs between rank 1", "after step 4",
       "--drift-check resync"});
}

TEST(Trainer, ReplicasStartWithTheWeightsOfRank0) {
  const auto hashes = [](double factor) {
    const auto data = small_data();
    return on_each_rank("thread", 3, [&](Communicator& comm) {
      auto model = linear_model();
      if (comm.rank() == 2) {
        const c10::AutoGradMode no_grad(false);
        model->parameters()[0].tensor.mul_(factor);
      }
      auto config = small_config();
      config.ranks.nproc = 3;
      return train(config, data, comm, std::move(model)).parameters_sha256;
    });
  };
  const auto same = hashes(1);
  EXPECT_THAT(hashes(2), testing::Each(same[0]));
}

TEST(Trainer, ReplicasThatDriftCanBeResynced) {
  auto config = small_config();
  config.strategy.drift_check = DriftCheck::resync;
  const auto hashes = hashes_of(config, nudge_at_call_3);
  EXPECT_EQ(hashes[0], hashes[1]);
  config.strategy.drift_check = DriftCheck::off;
  const auto apart = hashes_of(config, nudge_at_call_3);
  EXPECT_NE(apart[0], apart[1]);
}

TEST(Trainer, ALossThatIsNotFiniteStopsTheRunAndKeepsTheCheckpoint) {
  const Scratch scratch;
  auto config = small_config();
  config.output.out = scratch / "run";
  config.output.checkpoint_every = 1;
  config.training.epochs = 5;
  expect_error<Error>(
      [&] {
        hashes_of(config, [](int64_t call, const at::Tensor& output, at::Tensor&) {
          return call == 3 ? output * std::nan("") : output;
        });
      },
      {"not finite at step 3 on rank 1", "checkpoints/step-00000002"});
  EXPECT_FALSE(file_exists(config.output.out + "/checkpoints/step-00000003"));
}

TEST(Trainer, ParametersTheLossDoesNotUseCauseAWarning) {
  testing::internal::CaptureStderr();
  const auto comm = make_single_communicator();
  auto weight = at::zeros({64, 5}, at::kDouble).set_requires_grad(true);
  auto spare = at::zeros({3}, at::kDouble).set_requires_grad(true);
  auto config = small_config();
  config.ranks.nproc = 1;
  train(
      config, small_data(), *comm,
      make_function_model(
          [weight](const at::Tensor& x) {
            return x.flatten(1).to(at::kDouble).matmul(weight).log_softmax(1);
          },
          {{"weight", weight}, {"spare", spare}}));
  expect_parts(
      testing::internal::GetCapturedStderr(),
      {"does not depend on spare;", "requires_grad_(false)"});
}

TEST(Trainer, UnevenDataFollowThePolicy) {
  auto config = small_config();
  const auto comm = make_single_communicator();
  config.training.accumulate = 2;
  const auto whole = train(config, small_data(61), *comm, linear_model());
  config.training.accumulate = 1;
  // 61 samples over two ranks: 31 and 30.
  config.data.uneven = Uneven::join;
  const auto joined = hashes_of(config, {}, 61);
  EXPECT_EQ(joined[0], whole.parameters_sha256);
  EXPECT_EQ(joined[1], joined[0]);
  config.data.uneven = Uneven::pad;
  EXPECT_NE(hashes_of(config, {}, 61)[0], joined[0]);
  config.data.uneven = Uneven::drop;
  EXPECT_NE(hashes_of(config, {}, 61)[0], joined[0]);
  config.data.uneven = Uneven::error;
  expect_error<ConfigError>(
      [&] { hashes_of(config, {}, 61); },
      {"rank 0 has 31 samples in 4 steps, rank 1 has 30 in 4"});
  EXPECT_EQ(hashes_of(config, {}, 62).size(), 2u);
  config.data.uneven = Uneven::drop;
  expect_error<ConfigError>(
      [&] { hashes_of(config, {}, 1); }, {"1 sample on 2 ranks makes no step"});
}

// The last step of 33 samples has one sample, so rank 1 has none.
TEST(Trainer, ARankWithoutSamplesTakesPart) {
  auto config = small_config();
  config.data.uneven = Uneven::join;
  const auto joined = hashes_of(config, {}, 33);
  config.training.accumulate = 2;
  const auto comm = make_single_communicator();
  const auto whole = train(config, small_data(33), *comm, linear_model());
  EXPECT_EQ(joined[0], whole.parameters_sha256);
  EXPECT_EQ(joined[1], joined[0]);
}

TEST(Trainer, RanksWithOtherSettingsAreAnErrorBeforeTheFirstStep) {
  expect_error<ConfigError>(
      [&] {
        const auto data = small_data();
        run_ranks(2, [&](Communicator& comm) {
          auto config = small_config();
          config.training.batch_size = comm.rank() == 0 ? 8 : 4;
          train(config, data, comm, linear_model());
        });
      },
      {"batch_size", "rank 1"});
}

}  // namespace tandem::trainer_test
