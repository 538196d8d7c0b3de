// Compares averaged parameters with averaged gradients, and with one rank.

#include <gtest/gtest.h>

#include <string>

#include "tests/parallel/identity.h"

namespace tandem::averaging_identity_test {

// With plain SGD, averaging in every step averages gradients: the mean of p - lr * g is
// p - lr * (mean of g) if all ranks have equally many samples in each step.
TEST(AveragingIdentity, EveryStepOfPlainSgdEqualsDataParallel) {
  for (const int64_t micro_batches : {1, 2}) {
    RunOptions options;
    options.data_size = 48;
    options.micro_batches = micro_batches;
    options.optimizer.momentum = 0;
    options.strategy.average_every = 1;
    for (const int size : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(size) + " ranks");
      options.strategy.kind = StrategyKind::data_parallel;
      const auto reference = train_in_parallel(size, options);
      options.strategy.kind = StrategyKind::averaging;
      for (const auto& rank : train_in_parallel(size, options)) {
        EXPECT_LE(
            relative_difference(rank.parameters, reference[0].parameters), kTolerance);
        EXPECT_EQ(rank.sums[2].item<double>() * size, 96);
      }
    }
  }
}

TEST(AveragingIdentity, AverageIsTheMeanOfLocallyTrainedParameters) {
  RunOptions options;
  options.data_size = 48;
  options.epochs = 1;  // two steps
  options.strategy.kind = StrategyKind::averaging;
  options.strategy.average_every = 2;
  const auto averaged = train_in_parallel(2, options);
  EXPECT_EQ(averaged[0].sha256, averaged[1].sha256);
  options.strategy.average_every = 1;
  EXPECT_GT(
      relative_difference(
          train_in_parallel(2, options)[0].parameters, averaged[0].parameters),
      1e-6);
  options.strategy.average_every = -1;
  const auto alone = train_in_parallel(2, options);
  EXPECT_NE(alone[0].sha256, alone[1].sha256);
  EXPECT_LE(
      relative_difference(
          (alone[0].parameters + alone[1].parameters) / 2, averaged[0].parameters),
      kTolerance);
}

TEST(AveragingIdentity, OneRankHasTheBitsOfSequential) {
  for (const int64_t steps : {-1, 0, 1, 2}) {
    RunOptions options;
    options.micro_batches = 2;
    const auto reference = train_sequentially(options);
    options.strategy.kind = StrategyKind::averaging;
    options.strategy.average_every = steps;
    EXPECT_EQ(train_in_parallel(1, options)[0].sha256, reference.sha256) << steps;
  }
}

TEST(AveragingIdentity, AllBackendsGiveTheSameBits) {
  RunOptions options;
  options.strategy.kind = StrategyKind::averaging;
  options.strategy.average_every = 2;
  options.data_size = 48;  // four steps: the last one averages
  const auto threads = train_in_parallel(2, options);
  for (const std::string backend : all_backends()) {
    for (const auto& rank : train_in_parallel(2, options, backend)) {
      EXPECT_EQ(rank.sha256, threads[0].sha256) << backend;
    }
  }
}

}  // namespace tandem::averaging_identity_test
