// With divide_batch, runs on one to four ranks make the same steps on the same samples,
// so they print the same losses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "printed.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::divided_batch_test {

using testing::HasSubstr;
using testing::SizeIs;

constexpr double kTolerance = 1e-12;

// 64 samples in batches of 10, which four ranks divide into 3, 3, 3 and 1; the last
// batch has 4. In float64.
RunConfig divided(int ranks) {
  auto config = small_config();
  config.model.kind = ModelKind::lenet3x3;
  config.ranks.nproc = ranks;
  config.training.batch_size = 10;
  config.training.divide_batch = true;
  config.training.epochs = 2;
  config.exec.precision = Precision::fp64;
  config.output.log_every = 1;
  config.output.log_line = "loss {loss:.17g} {batch_loss:.17g} {count}";
  config.output.epoch_line = "epoch {loss:.17g} {batch_loss:.17g} {count}";
  return config;
}

using Numbers = std::vector<std::vector<double>>;

Numbers numbers_of(const Lines& lines, const std::string& start) {
  Numbers all;
  for (const auto& line : starting_with(lines, start)) {
    std::istringstream words(line.substr(start.size()));
    all.emplace_back();
    for (double number = 0; words >> number;) {
      all.back().push_back(number);
    }
  }
  return all;
}

void expect_same(const Numbers& mine, const Numbers& of_one) {
  ASSERT_EQ(mine.size(), of_one.size());
  for (size_t line = 0; line < mine.size(); ++line) {
    ASSERT_EQ(mine[line].size(), of_one[line].size());
    for (size_t i = 0; i < mine[line].size(); ++i) {
      EXPECT_NEAR(mine[line][i], of_one[line][i], kTolerance) << line << ", " << i;
    }
  }
}

void expect_same_lines(const Lines& mine, const Lines& of_one) {
  expect_same(numbers_of(mine, "loss"), numbers_of(of_one, "loss"));
  expect_same(numbers_of(mine, "epoch"), numbers_of(of_one, "epoch"));
}

TEST(DivideBatch, AnyNumberOfRanksPrintsTheLossesOfOneRank) {
  const auto one = run(divided(1)).lines;
  const auto losses = numbers_of(one, "loss");
  ASSERT_THAT(losses, SizeIs(14));
  EXPECT_EQ(losses[0][2], 10);
  EXPECT_EQ(losses[6][2], 4);
  EXPECT_GT(std::abs(losses[0][0] - losses[7][0]), 1e-3) << "it learns nothing";
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    expect_same_lines(run(divided(ranks)).lines, one);
  }
}

// Losses of a model that does not train identify the samples of a step.
TEST(DivideBatch, TheSameSamplesAreInTheSameStep) {
  const auto losses_of = [](int ranks) {
    auto config = divided(ranks);
    config.optimizer.lr = 0;
    return numbers_of(run(config).lines, "loss");
  };
  const auto one = losses_of(1);
  for (size_t step = 1; step < one.size(); ++step) {
    EXPECT_GT(std::abs(one[step][0] - one[0][0]), 1e-6) << "two steps look alike";
  }
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    expect_same(losses_of(ranks), one);
  }
}

// Masks depend on a sample's position, not on the rank that reads the sample.
TEST(DivideBatch, DropoutIsThatOfOneRank) {
  const auto losses_of = [](int ranks, bool dropout) {
    auto config = divided(ranks);
    config.model.kind = ModelKind::net;
    config.model.dropout = dropout;
    return run(config).lines;
  };
  const auto one = losses_of(1, true);
  EXPECT_NE(numbers_of(one, "loss"), numbers_of(losses_of(1, false), "loss"));
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    expect_same_lines(losses_of(ranks, true), one);
  }
}

TEST(DivideBatch, MicroBatchesAddUpToTheSameStep) {
  const auto whole = run(divided(1)).lines;
  for (const int ranks : {1, 3, 4}) {
    SCOPED_TRACE(ranks);
    auto config = divided(ranks);
    config.training.batch_size = 5;
    config.training.accumulate = 2;
    expect_same_lines(run(config).lines, whole);
  }
}

TEST(DivideBatch, MoreRanksThanSamplesLeaveSomeRanksEmpty) {
  auto config = divided(1);
  config.training.batch_size = 3;
  const auto one = run(config).lines;
  ASSERT_THAT(numbers_of(one, "loss"), SizeIs(44));
  config.ranks.nproc = 4;
  expect_same_lines(run(config).lines, one);
}

TEST(DivideBatch, ShardedUpdatesAndOtherSyncsChangeNothing) {
  const auto one = run(divided(1)).lines;
  for (const auto sync : {SyncMode::parameter, SyncMode::flat}) {
    auto config = divided(3);
    config.strategy.sync = sync;
    config.strategy.shard = Sharding::optimizer;
    expect_same_lines(run(config).lines, one);
  }
}

TEST(DivideBatch, EachRankPrintsTheLossOfItsChunk) {
  auto config = divided(3);
  config.training.epochs = 1;
  config.output.log_ranks = LogRanks::all;
  config.output.log_line = "{rank}: {own_samples} {count}";
  config.output.log_every = 6;
  const auto lines = run(config).lines;
  EXPECT_THAT(lines, testing::IsSupersetOf({"0: 20 24", "1: 20 24", "2: 10 12"}));
}

TEST(DivideBatch, IsInTheFirstLine) {
  EXPECT_THAT(
      run(divided(3)).lines,
      testing::Contains(HasSubstr("64 samples, batch 10 / 3, data_parallel")));
}

// A run stops in the middle of an epoch on three ranks and resumes on two. Its losses
// are those of one rank.
TEST(DivideBatch, ResumesWithAnotherNumberOfRanks) {
  const Scratch scratch;
  const auto one = run(divided(1));
  auto config = divided(3);
  config.output.out = scratch / "run";
  config.output.checkpoint_every = 4;
  config.output.keep_checkpoints = 0;
  run(config);
  config.output.resume = config.output.out + "/checkpoints/step-00000004";
  config.output.out = scratch / "again";
  config.ranks.nproc = 2;
  const auto again = run(config);
  EXPECT_EQ(again.summary.steps, one.summary.steps);
  auto rest = numbers_of(one.lines, "loss");
  rest.erase(rest.begin(), rest.begin() + 4);
  expect_same(numbers_of(again.lines, "loss"), rest);
}

TEST(DivideBatch, RefusesConflictingSettings) {
  const auto error_with = [](const auto& change) {
    auto config = divided(2);
    change(config);
    return error_of<ConfigError>([&] { check(config); });
  };
  for (const auto kind :
       {StrategyKind::averaging, StrategyKind::hogwild, StrategyKind::pipeline,
        StrategyKind::parameter_server}) {
    expect_parts(
        error_with([&](RunConfig& config) { config.strategy.kind = kind; }),
        {"divide_batch is true, which is for strategy data_parallel or sequential",
         name_of(kind)});
  }
  for (const auto uneven : {Uneven::drop, Uneven::error}) {
    EXPECT_THAT(
        error_with([&](RunConfig& config) { config.data.uneven = uneven; }),
        HasSubstr("uses every sample once"));
  }
  EXPECT_THAT(
      error_with([](RunConfig& config) { config.data.share = Share::scatter; }),
      HasSubstr("--share sampler"));
  EXPECT_EQ(error_with([](RunConfig&) {}), "(no error)");
}

}  // namespace tandem::divided_batch_test
