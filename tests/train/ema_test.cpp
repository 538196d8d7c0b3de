// Moving averages of the weights in runs and checkpoints.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/data/load_dataset.h"
#include "tandem/formats/safetensors.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"
#include "tests/train/thread_run.h"

namespace tandem::ema_test {

const DatasetSplits& digits() {
  static const auto data = load_dataset("digits", 48);
  return data;
}

// Four steps of 12 samples on any number of ranks that divides 3.
RunConfig config_of(const std::string& out, int64_t ranks) {
  RunConfig config = thread_config(ModelKind::lenet3x3, ranks);
  config.training.batch_size = 4;
  config.training.accumulate = 3 / ranks;
  config.optimizer.kind = OptimizerKind::adam;
  config.optimizer.ema_decay = 0.7;
  config.exec.executor = ExecutorKind::eager;
  config.exec.precision = Precision::fp32;
  config.output.out = out;
  config.output.checkpoint_every = 2;
  return config;
}

Summary train_on(const std::string& backend, const RunConfig& config) {
  testing::internal::CaptureStdout();
  const auto summaries = on_each_rank(
      backend, static_cast<int>(config.ranks.nproc),
      [&](Communicator& comm) { return train(config, digits(), comm); });
  testing::internal::GetCapturedStdout();
  return summaries[0];
}

std::map<std::string, at::Tensor> averages_of(
    const std::string& run, CheckpointWeights weights = CheckpointWeights::ema) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : read_model(run, weights).tensors) {
    tensors[name] = tensor;
  }
  return tensors;
}

void expect_same_averages(const std::string& run, const std::string& expected) {
  const auto ours = averages_of(run);
  const auto theirs = averages_of(expected);
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    EXPECT_TRUE(same_bits(ours.at(name), tensor)) << name;
  }
}

TEST(EmaRun, AveragesHaveTheSameBitsHoweverRanksDivideTheWork) {
  const Scratch scratch;
  const auto alone = scratch / "alone";
  train_on("thread", config_of(alone, 1));
  const auto own = averages_of(alone, CheckpointWeights::own);
  EXPECT_FALSE(same_bits(averages_of(alone).at("fc1.weight"), own.at("fc1.weight")));
  for (const auto state : {Sharding::none, Sharding::optimizer}) {
    const auto out = scratch / name_of(state);
    auto config = config_of(out, 3);
    config.strategy.shard = state;
    train_on("shm", config);
    expect_same_averages(out, alone);
  }
  const auto stages = scratch / "stages";
  auto config = config_of(stages, 3);
  config.strategy.kind = StrategyKind::pipeline;
  config.training.accumulate = 3;
  train_on("thread", config);
  expect_same_averages(stages, alone);
}

TEST(EmaRun, ResumesWithTheSameBitsOnAnotherNumberOfRanks) {
  const Scratch scratch;
  const auto whole = scratch / "whole";
  train_on("shm", config_of(whole, 3));
  for (const auto state : {Sharding::none, Sharding::optimizer}) {
    const auto out = scratch / (std::string("resumed-") + name_of(state));
    auto config = config_of(out, state == Sharding::optimizer ? 3 : 1);
    config.strategy.shard = state;
    config.output.resume = whole + "/checkpoints/step-00000002";
    train_on("shm", config);
    expect_same_averages(out, whole);
  }
}

TEST(EmaRun, EvaluatesTheAveragesOfACheckpoint) {
  const Scratch scratch;
  const auto run = scratch / "run";
  const auto summary = train_on("thread", config_of(run, 3));
  CheckpointEvaluation evaluation;
  evaluation.dataset = digits().test;
  const auto own = evaluate_checkpoint(run, evaluation);
  EXPECT_NEAR(own.loss, summary.test.loss, 1e-5);
  evaluation.weights = CheckpointWeights::ema;
  const auto averaged = evaluate_checkpoint(run, evaluation);
  EXPECT_NE(averaged.loss, own.loss);

  // A run that starts from the averages, and makes no step.
  const auto file = scratch / "ema.safetensors";
  write_safetensors(file, {read_model(run, CheckpointWeights::ema).tensors, {}});
  auto config = config_of("", 1);
  config.model.init = file;
  config.training.epochs = 0;
  EXPECT_NEAR(train_on("thread", config).test.loss, averaged.loss, 1e-5);
}

TEST(EmaRun, AveragesBeforeTheFirstStepAreTheWeights) {
  const Scratch scratch;
  const auto run = scratch / "run";
  auto config = config_of(run, 1);
  config.training.epochs = 0;
  train_on("thread", config);
  const auto own = averages_of(run, CheckpointWeights::own);
  EXPECT_TRUE(same_bits(averages_of(run).at("fc1.weight"), own.at("fc1.weight")));
}

TEST(EmaRun, MissingAveragesAreAnError) {
  const Scratch scratch;
  const auto run = scratch / "run";
  auto config = config_of(run, 1);
  config.optimizer.ema_decay = 0;
  train_on("thread", config);
  expect_error<ConfigError>(
      [&] { (void)read_model(run, CheckpointWeights::ema); },
      {"has no moving averages", "leave out --ema"});
  // The run cannot begin to average, and a run that averages cannot stop.
  config.optimizer.ema_decay = 0.5;
  config.training.epochs = 2;
  config.output.resume = "auto";
  expect_error<ConfigError>(
      [&] { train(config, digits(), *make_single_communicator()); },
      {"ema_decay is 0.5, expected 0"});
  const auto file = newest_checkpoint(run + "/checkpoints") + "/model.safetensors";
  replace_file(scratch / "model.safetensors", read_file(file));
  expect_error<ConfigError>(
      [&] { (void)read_model(scratch / "model.safetensors", CheckpointWeights::ema); },
      {"training.safetensors' is missing"});
}

}  // namespace tandem::ema_test
