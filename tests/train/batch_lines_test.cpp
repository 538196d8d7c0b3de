// Lines about single batches: whose loss they show, at which steps, and in which order
// batches are read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "printed.h"
#include "tandem/base/text.h"
#include "tandem/data/load_dataset.h"

namespace tandem::batch_lines_test {

using testing::ElementsAre;
using testing::SizeIs;

// 64 samples on three ranks: 11 batches of 2 per rank, with two samples repeated. In
// float64, losses computed in two ways agree in all compared digits.
RunConfig three_ranks() {
  auto config = small_config();
  config.ranks.nproc = 3;
  config.training.batch_size = 2;
  config.exec.precision = Precision::fp64;
  config.output.log_ranks = LogRanks::all;
  config.output.log_every = 1;
  config.output.log_line = "{rank} in epoch {epoch_index}: {batch_index} {batch_loss}";
  // Without times, so that all output can be compared.
  config.output.end_line = "end";
  return config;
}

Lines sorted_run(const RunConfig& config) {
  auto lines = run(config).lines;
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(BatchLines, ShowTheLossOfARanksOwnBatchAlone) {
  auto config = three_ranks();
  // With one batch per report, both losses are the same.
  config.output.log_line = "{rank}: {batch_index} {loss:.6f}";
  const auto each = sorted_run(config);
  config.output.log_line = "{rank}: {batch_index} {batch_loss:.6f}";
  EXPECT_EQ(sorted_run(config), each);
  config.output.log_every = 3;
  for (const std::string rank : {"0: ", "1: ", "2: "}) {
    const auto of_rank = starting_with(each, rank);
    const auto lines = starting_with(run(config).lines, rank);
    ASSERT_THAT(lines, SizeIs(4));
    EXPECT_THAT(of_rank, testing::IsSupersetOf(lines));
  }
}

TEST(BatchLines, AreOfRankZeroIfOnlyRankZeroPrints) {
  auto config = three_ranks();
  const auto own = starting_with(run(config).lines, "0 in");
  config.output.log_ranks = LogRanks::first;
  ASSERT_THAT(own, SizeIs(11));
  EXPECT_EQ(starting_with(run(config).lines, "0 in"), own);
}

TEST(BatchLines, ShowAFloat32LossOfAFloat32Model) {
  auto config = three_ranks();
  config.exec.precision = Precision::fp32;
  config.output.log_line = "loss {batch_loss}";
  const auto is_float32 = [](const std::string& line) {
    const double loss = last_number(line);
    return static_cast<double>(static_cast<float>(loss)) == loss;
  };
  const auto float32 = starting_with(run(config).lines, "loss");
  EXPECT_TRUE(std::all_of(float32.begin(), float32.end(), is_float32));
  config.exec.precision = Precision::fp64;
  const auto float64 = starting_with(run(config).lines, "loss");
  EXPECT_TRUE(std::none_of(float64.begin(), float64.end(), is_float32));
}

TEST(BatchLines, CountAStepsMicroBatchesAsOneBatch) {
  auto config = three_ranks();
  config.output.log_line = "{rank}: {batch_index} {own_samples} {batch_loss:.5f}";
  config.training.batch_size = 4;
  const auto whole = sorted_run(config);
  config.training.batch_size = 2;
  config.training.accumulate = 2;
  const auto parts = sorted_run(config);
  EXPECT_EQ(starting_with(parts, "2: "), starting_with(whole, "2: "));
  EXPECT_THAT(starting_with(parts, "2: 5 20 "), SizeIs(1));
}

// Losses are known only at the last stage.
TEST(BatchLines, OfAPipelineShowTheBatchOnTheFirstStageToo) {
  auto config = three_ranks();
  config.model.kind = ModelKind::net5x5;
  config.strategy.kind = StrategyKind::pipeline;
  config.data.source = "digits";
  config.output.log_ranks = LogRanks::first;
  config.output.log_line = "{batch_index} {loss:.6f}|{batch_loss:.6f}";
  const DatasetSplits data = load_dataset("digits", 20);
  testing::internal::CaptureStdout();
  run_ranks(3, [&](Communicator& comm) { train(config, data, comm); });
  int lines = 0;
  for (const auto& line : split(testing::internal::GetCapturedStdout(), '\n')) {
    const size_t bar = line.find('|');
    if (bar != std::string::npos) {
      ++lines;
      EXPECT_EQ(line.substr(bar - 8, 8), line.substr(bar + 1)) << line;
    }
  }
  EXPECT_EQ(lines, 10);
}

Lines places(RunConfig config, LogAt log_at) {
  config.training.epochs = 2;
  config.output.log_every = 3;
  config.output.log_at = log_at;
  config.output.log_line = "{rank} in {epoch_index}: {batch_index} of {count}";
  return starting_with(run(config).lines, "2 in");
}

TEST(BatchLines, ComeAtTheFirstOrLastOfEveryFewSteps) {
  EXPECT_THAT(
      places(three_ranks(), LogAt::last),
      ElementsAre(
          "2 in 0: 2 of 6", "2 in 0: 5 of 6", "2 in 0: 8 of 6", "2 in 1: 2 of 6",
          "2 in 1: 5 of 6", "2 in 1: 8 of 6"));
  EXPECT_THAT(
      places(three_ranks(), LogAt::last_and_end),
      ElementsAre(
          "2 in 0: 2 of 6", "2 in 0: 5 of 6", "2 in 0: 8 of 6", "2 in 0: 10 of 4",
          "2 in 1: 2 of 6", "2 in 1: 5 of 6", "2 in 1: 8 of 6", "2 in 1: 10 of 4"));
  // A report has no steps of the previous epoch, in lockstep or not.
  for (const auto strategy : {StrategyKind::data_parallel, StrategyKind::averaging}) {
    auto config = three_ranks();
    config.strategy.kind = strategy;
    EXPECT_THAT(
        places(config, LogAt::first),
        ElementsAre(
            "2 in 0: 0 of 2", "2 in 0: 3 of 6", "2 in 0: 6 of 6", "2 in 0: 9 of 6",
            "2 in 1: 0 of 2", "2 in 1: 3 of 6", "2 in 1: 6 of 6", "2 in 1: 9 of 6"));
  }
}

// Losses of a model that does not train identify the batches.
Lines losses_of_epoch(const RunConfig& config, int epoch) {
  auto lines =
      starting_with(sorted_run(config), "3 in epoch " + std::to_string(epoch) + ": ");
  for (auto& line : lines) {
    line = line.substr(line.find(':'));
  }
  return lines;
}

TEST(Reshuffle, FalseKeepsTheFirstEpochsOrder) {
  auto config = three_ranks();
  config.ranks.nproc = 4;
  config.training.epochs = 3;
  config.optimizer.lr = 0;
  const auto first = losses_of_epoch(config, 0);
  ASSERT_THAT(first, SizeIs(8));
  EXPECT_NE(losses_of_epoch(config, 1), first);
  EXPECT_NE(losses_of_epoch(config, 2), first);
  config.data.reshuffle = false;
  for (const int epoch : {0, 1, 2}) {
    EXPECT_EQ(losses_of_epoch(config, epoch), first);
  }
}

}  // namespace tandem::batch_lines_test
