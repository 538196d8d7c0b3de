// Output of a run: the ranks that report, the templates, and convergence.

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "printed.h"
#include "tandem/base/files.h"
#include "tandem/base/program_clock.h"
#include "tandem/train/report/reporter.h"
#include "tests/base/test_tools.h"

namespace tandem::reports_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(Reports, AreOfRankZeroByDefault) {
  const auto lines = run(small_config()).lines;
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_THAT(lines[0], HasSubstr("64 samples, 2 x batch 8"));
  EXPECT_THAT(lines[1], StartsWith("epoch 1/1  step 2/4  loss "));
  EXPECT_THAT(lines[2], StartsWith("epoch 1/1  step 4/4  loss "));
  EXPECT_THAT(lines[3], StartsWith("epoch 1/1  training loss "));
  EXPECT_THAT(lines[4], StartsWith("Test set: Average loss: "));
  EXPECT_THAT(lines[5], StartsWith("Finished training in "));
}

TEST(Reports, OfAllRanksShowTheirOwnLosses) {
  auto config = small_config();
  config.output.log_line = "{rank} step {step} of {count} samples: {loss:.9f}";
  const auto together = starting_with(run(config).lines, "0 step");
  config.output.log_ranks = LogRanks::all;
  const auto lines = run(config).lines;
  const auto first = starting_with(lines, "0 step");
  const auto second = starting_with(lines, "1 step");
  ASSERT_THAT(together, SizeIs(2));
  ASSERT_THAT(first, SizeIs(2));
  ASSERT_THAT(second, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_THAT(together[i], HasSubstr("of 32 samples"));
    EXPECT_THAT(first[i], HasSubstr("of 16 samples"));
    const double a = last_number(first[i]);
    const double b = last_number(second[i]);
    EXPECT_GT(std::abs(a - b), 1e-6);
    EXPECT_NEAR(last_number(together[i]), (a + b) / 2, 1e-8);
  }
}

TEST(Reports, OfAllRanksNameTheRankWithoutATemplate) {
  auto config = small_config();
  config.output.log_ranks = LogRanks::all;
  const auto lines = run(config).lines;
  EXPECT_THAT(starting_with(lines, "rank 0  epoch 1/1  step "), SizeIs(2));
  EXPECT_THAT(starting_with(lines, "rank 1  epoch 1/1  step "), SizeIs(2));
}

TEST(Reports, OfAHostAreOfItsFirstRank) {
  auto config = small_config();
  config.output.log_ranks = LogRanks::host;
  config.output.log_line = "{rank} step {step} of {count}";
  // Ranks that are threads share a host.
  EXPECT_THAT(starting_with(run(config).lines, "0 step"), SizeIs(2));
  EXPECT_THAT(starting_with(run(config).lines, "1 step"), IsEmpty());
}

TEST(Reports, FollowTheTemplates) {
  auto config = small_config();
  config.training.epochs = 2;
  config.output.log_ranks = LogRanks::all;
  config.output.start_line = "{rank}: {share} of {total} samples";
  config.output.log_line = "off";
  config.output.epoch_line = "{rank}: epoch {epoch} over {count}";
  config.output.test_line = "{correct} of {count} after {epoch}/{epochs}";
  config.output.end_line = "end";
  const auto lines = run(config).lines;
  EXPECT_THAT(
      lines, IsSupersetOf(
                 {"0: 32 of 64 samples", "1: 32 of 64 samples", "0: epoch 1 over 32",
                  "1: epoch 1 over 32", "0: epoch 2 over 32", "1: epoch 2 over 32"}));
  EXPECT_THAT(lines, SizeIs(1 + 6 + 2 + 1));
  EXPECT_THAT(lines, Contains(testing::EndsWith("of 10 after 2/2")));
  EXPECT_EQ(lines.back(), "end");
}

// The launcher of the program started 1000 s earlier.
TEST(Reports, HaveTheTimesOfTrainingAndProgram) {
  auto config = small_config();
  config.output.log_line = "off";
  config.output.test_line = "test {seconds} {program_seconds}";
  config.output.end_line = "end {minutes} {program_minutes}";
  const auto variable = program_start_variable();
  const double start = std::stod(variable.second) - 1000;
  setenv(variable.first.c_str(), std::to_string(start).c_str(), 1);
  const auto result = run(config);
  unsetenv(variable.first.c_str());
  const auto test = starting_with(result.lines, "test ");
  const auto end = starting_with(result.lines, "end ");
  ASSERT_THAT(test, SizeIs(1));
  ASSERT_THAT(end, SizeIs(1));
  const auto first_number = [](const std::string& line) {
    return std::stod(line.substr(line.find(' ')));
  };
  EXPECT_GT(first_number(test[0]), 0);
  EXPECT_GE(last_number(test[0]), 1000 + first_number(test[0]));
  EXPECT_GE(60 * last_number(end[0]), 1000 + 60 * first_number(end[0]));
  EXPECT_GE(result.summary.program_seconds, 1000 + result.summary.train_seconds);
}

TEST(Progress, FitsOnATerminal) {
  LineValues values;
  values.epoch = 3;
  values.epoch_index = 2;
  values.epochs = 14;
  values.step = 469;
  values.steps = 938;
  values.samples_per_second = 12345;
  values.loss = 0.25;
  values.seconds = 50;
  const auto bar_of = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\xe2');
  };
  const auto width_of = [&](const std::string& text) {
    return static_cast<int64_t>(text.size()) - 2 * bar_of(text);
  };
  EXPECT_EQ(bar_of(progress_text(values, 0)), 24);
  EXPECT_EQ(progress_text(values, 120), progress_text(values, 0));
  for (int columns = 10; columns < 120; ++columns) {
    const auto text = progress_text(values, columns);
    EXPECT_LT(width_of(text), columns) << text;
    EXPECT_THAT(text, StartsWith("epoch 3/"));
  }
  EXPECT_THAT(
      progress_text(values, 60),
      testing::AllOf(HasSubstr("12345 samples/s  loss 0.2500  "), HasSubstr("left")));
  EXPECT_EQ(progress_text(values, 30), "epoch 3/14  50%  loss 0.2500");
}

TEST(RunClock, CountsTheTimeOfAllStarts) {
  RunClock first;
  first.add(10);
  const auto saved = first.time(2);
  EXPECT_EQ(saved.samples, 12);
  RunClock again;
  again.continue_from({60, 300, 100, 40, "another program"});
  EXPECT_EQ(again.seconds(), 60);
  EXPECT_EQ(again.mean_rate(), 5);
  EXPECT_GE(again.program_seconds(), 100 + saved.program_seconds);
  // A launcher that starts the ranks again counts the time of all attempts.
  again.continue_from({60, 300, 100, 40, saved.program_start});
  EXPECT_GE(again.program_seconds(), 40 + saved.program_seconds);
  EXPECT_LT(again.program_seconds(), 100 + program_seconds());
  EXPECT_EQ(again.time(0).earlier_program_seconds, 40);
}

TEST(Reports, ARankThatConvergedKeepsTheAccuracyOfItsLastEpoch) {
  const auto comm = make_single_communicator();
  StrategyOptions options;
  options.kind = StrategyKind::averaging;
  Replica replica(make_small_model(small_net_layers()), *comm, options, {});
  const auto config = small_config();
  Reporter reporter(config, *comm, *replica.strategy, at::kCPU, kAccuracy, {});
  reporter.add_step({5, 3, 4}, 0);
  reporter.end_epoch({});
  EXPECT_EQ(reporter.epoch_metric(), 75);
  reporter.end_epoch({});
  EXPECT_EQ(reporter.epoch_metric(), 75);
}

// Two steps of a regression and an evaluation.
TEST(Reports, HaveTheMetricOfTheLoss) {
  const Scratch scratch;
  const auto comm = make_single_communicator();
  const Loss loss{LossKind::mse, Reduction::mean};
  Replica replica(make_small_model(small_net_layers()), *comm, {}, {}, loss);
  auto config = small_config();
  config.output.log_line = "train {metric} {accuracy}";
  TestReport test;
  test.loss = 0.25;
  test.metric = &kAbsoluteError;
  test.metric_value = 0.375;
  test.count = 20;
  Summary summary;
  summary.test = test;
  summary.train_metric_value = 2.5;
  testing::internal::CaptureStdout();
  {
    RunDirectory directory(scratch.path(), config, std::nullopt);
    Dataset train;
    train.targets.shape = {5};
    Reporter reporter(config, *comm, *replica.strategy, at::kCPU, loss.metric(), train);
    reporter.write_to(directory);
    reporter.add_step({5, 20, 10}, 0);
    reporter.add_step({5, 5, 10}, 0);
    reporter.report({}, true);
    EXPECT_EQ(reporter.end_epoch({}).mean, 0.5);
    EXPECT_EQ(reporter.epoch_metric(), 1.25);
    reporter.show(test);
    directory.finish(summary, config);
  }
  EXPECT_EQ(
      testing::internal::GetCapturedStdout(),
      "train 1.25 nan\n"
      "Test set: Average loss: 0.2500, Mean absolute error: 0.3750\n");
  const auto metrics = read_file(scratch / "metrics.jsonl");
  expect_parts(
      metrics,
      {"\"loss\":0.5,\"train_mae\":1.25,", "\"test_loss\":0.25,\"test_mae\":0.375}"});
  const auto json = nlohmann::json::parse(read_file(scratch / "summary.json"));
  EXPECT_EQ(json.at("test_mae"), 0.375);
  EXPECT_EQ(json.at("train_mae"), 2.5);
  for (const char* file : {"metrics.jsonl", "summary.json"}) {
    EXPECT_THAT(read_file(scratch / file), testing::Not(HasSubstr("accuracy")));
  }
}

TEST(Reports, CanBeOff) {
  auto config = small_config();
  config.output.log_line = "off";
  config.output.test_line = "off";
  EXPECT_THAT(
      run(config).lines,
      ElementsAre(HasSubstr("2 x batch 8"), StartsWith("Finished training in ")));
}

TEST(Converged, TrainingEndsWhenALossImprovesByLessThanMinDelta) {
  auto config = small_config();
  config.training.epochs = 6;
  config.optimizer.lr = 0;
  config.training.min_delta = 1e-4;
  config.output.log_ranks = LogRanks::all;
  config.output.converged_line = "Converged on rank {rank} in epoch {epoch}";
  const auto result = run(config);
  // The second epoch does not improve the loss by min_delta.
  EXPECT_EQ(result.summary.epochs, 2);
  EXPECT_EQ(result.summary.steps, 8);
  EXPECT_THAT(
      result.lines,
      IsSupersetOf(
          {"Converged on rank 0 in epoch 2", "Converged on rank 1 in epoch 2"}));
}

// A PyTorch loop that divides by len(dataloader.dataset) with a DistributedSampler
// prints the same loss.
TEST(EpochMean, DatasetDividesARanksSumsByAllSamples) {
  auto config = small_config();
  config.strategy.kind = StrategyKind::averaging;
  config.training.epochs = 2;
  config.output.log_ranks = LogRanks::all;
  config.output.log_line = "off";
  config.output.epoch_line =
      "{rank}: {count} samples, {accuracy:.9f} %, loss {loss:.9f}";
  const auto of_shard = run(config);
  config.training.epoch_mean = EpochMean::dataset;
  const auto of_dataset = run(config);
  for (const std::string rank : {"0: ", "1: "}) {
    const auto shard = starting_with(of_shard.lines, rank + "32 samples");
    const auto dataset = starting_with(of_dataset.lines, rank + "64 samples");
    ASSERT_THAT(shard, SizeIs(2));
    ASSERT_THAT(dataset, SizeIs(2));
    for (size_t epoch = 0; epoch < 2; ++epoch) {
      EXPECT_NEAR(last_number(dataset[epoch]), last_number(shard[epoch]) / 2, 1e-8);
      const auto accuracy = [&](const std::string& line) {
        return std::stod(line.substr(line.find(", ") + 2));
      };
      EXPECT_NEAR(accuracy(dataset[epoch]), accuracy(shard[epoch]) / 2, 1e-8);
    }
  }
  EXPECT_EQ(of_dataset.summary.train_metric_value, of_shard.summary.train_metric_value);
}

// The loss improves by more than min_delta, but by less than twice min_delta.
TEST(EpochMean, DatasetMakesMinDeltaCompareSmallerImprovements) {
  auto config = small_config();
  config.strategy.kind = StrategyKind::averaging;
  config.strategy.average_every = StrategyOptions::kAtTheEnd;
  config.training.epochs = 2;
  // Each epoch has the same samples.
  config.data.reshuffle = false;
  config.optimizer.lr = 0.02;
  config.output.log_ranks = LogRanks::all;
  config.output.log_line = "off";
  config.output.epoch_line = "{rank}: loss {loss:.9f}";
  config.output.converged_line = "{rank} converged after {epoch}";
  const auto losses = starting_with(run(config).lines, "0: ");
  ASSERT_THAT(losses, SizeIs(2));
  const double improvement = last_number(losses[0]) - last_number(losses[1]);
  ASSERT_GT(improvement, 0);
  config.training.epochs = 3;
  config.training.min_delta = 0.75 * improvement;
  EXPECT_THAT(run(config).lines, Not(Contains("0 converged after 2")));
  config.training.epoch_mean = EpochMean::dataset;
  EXPECT_THAT(run(config).lines, Contains("0 converged after 2"));
}

// Ranks in lockstep compare the loss over all ranks, which read the whole dataset.
TEST(EpochMean, DatasetLeavesTheLossOfAllRanksUnchanged) {
  auto config = small_config();
  config.output.log_line = "off";
  config.output.epoch_line = "epoch: {count} samples, loss {loss:.9f}";
  const auto of_shard = starting_with(run(config).lines, "epoch: 64 samples");
  config.training.epoch_mean = EpochMean::dataset;
  ASSERT_THAT(of_shard, SizeIs(1));
  EXPECT_EQ(starting_with(run(config).lines, "epoch: 64 samples"), of_shard);
}

TEST(Converged, RankZeroPrintsItWithoutATemplate) {
  auto config = small_config();
  config.training.epochs = 6;
  config.optimizer.lr = 0;
  config.training.min_delta = 0.5;
  EXPECT_THAT(
      starting_with(run(config).lines, "Converged"),
      ElementsAre("Converged in epoch 2: the loss improved by less than 0.5"));
}

TEST(Converged, TrainingContinuesWhileTheLossImproves) {
  auto config = small_config();
  config.training.epochs = 3;
  config.optimizer.lr = 0.02;
  config.output.converged_line = "Converged";
  config.training.min_delta = 1e-9;
  const auto result = run(config);
  EXPECT_EQ(result.summary.epochs, 3);
  EXPECT_THAT(result.lines, Not(Contains("Converged")));
  // With 0 all epochs are trained.
  config.training.min_delta = 0;
  config.optimizer.lr = 0;
  EXPECT_EQ(run(config).summary.epochs, 3);
}

}  // namespace tandem::reports_test
