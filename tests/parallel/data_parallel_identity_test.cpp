// Compares replicas with one rank that has the whole batch.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parallel/identity.h"

namespace tandem::data_parallel_identity_test {

constexpr SyncMode kModes[] = {SyncMode::parameter, SyncMode::flat, SyncMode::overlap};

void expect_equals(const std::vector<RunResult>& ranks, const RunResult& reference) {
  auto sums = ranks[0].sums.clone().zero_();
  for (const auto& rank : ranks) {
    EXPECT_LE(relative_difference(rank.parameters, reference.parameters), kTolerance);
    EXPECT_EQ(rank.sha256, ranks[0].sha256);
    EXPECT_NEAR(
        rank.gradient_norm, reference.gradient_norm,
        kTolerance * reference.gradient_norm);
    sums += rank.sums;
  }
  EXPECT_NEAR(
      sums[0].item<double>(), reference.sums[0].item<double>(),
      kTolerance * reference.sums[0].item<double>());
  EXPECT_EQ(sums[1].item<double>(), reference.sums[1].item<double>());
  EXPECT_EQ(sums[2].item<double>(), reference.sums[2].item<double>());
}

TEST(DataParallelIdentity, ReferenceTrainsAndDependsOnTheSeed) {
  RunOptions options;
  const auto reference = train_sequentially(options);
  EXPECT_EQ(reference.sums[2].item<double>(), 120);
  EXPECT_EQ(train_sequentially(options).sha256, reference.sha256);
  options.seed = 6;
  EXPECT_GT(
      relative_difference(train_sequentially(options).parameters, reference.parameters),
      1e-3);
  options.lr = 0;
  EXPECT_GT(
      relative_difference(train_sequentially(options).parameters, reference.parameters),
      1e-2);
}

TEST(DataParallelIdentity, EverySyncModeAndSizeEqualsSequential) {
  RunOptions options;
  const auto reference = train_sequentially(options);
  for (const int size : {1, 2, 3, 4}) {
    for (const auto sync : kModes) {
      SCOPED_TRACE(
          std::to_string(size) + " ranks, mode " +
          std::to_string(static_cast<int>(sync)));
      options.strategy.sync = sync;
      expect_equals(train_in_parallel(size, options), reference);
    }
  }
}

TEST(DataParallelIdentity, SyncModesGiveTheSameBits) {
  RunOptions options;
  for (const int size : {2, 3}) {
    std::vector<std::string> digests;
    for (const auto sync : kModes) {
      options.strategy.sync = sync;
      digests.push_back(train_in_parallel(size, options)[0].sha256);
    }
    EXPECT_EQ(digests, std::vector<std::string>(3, digests[0])) << size;
  }
}

TEST(DataParallelIdentity, ShmRanksHaveTheBitsOfThreads) {
  RunOptions options;
  for (const int size : {2, 3, 4}) {
    for (const auto hook : {CommHook::none, CommHook::bf16, CommHook::fp16}) {
      SCOPED_TRACE(size);
      options.strategy.comm_hook = hook;
      const auto threads = train_in_parallel(size, options);
      for (const auto& rank : train_in_parallel(size, options, "shm")) {
        EXPECT_EQ(rank.sha256, threads[0].sha256);
      }
    }
  }
}

TEST(DataParallelIdentity, MicroBatchesEqualOneBatchOfTheirTotalSize) {
  RunOptions options;
  const auto reference = train_sequentially(options);
  // Batches have 24, 24 and 12 samples, so the last step has fewer and shorter
  // micro-batches.
  options.micro_batches = 3;
  expect_equals({train_sequentially(options)}, reference);
  for (const auto sync : kModes) {
    options.strategy.sync = sync;
    options.micro_batches = 2;
    expect_equals(train_in_parallel(2, options), reference);
    options.micro_batches = 4;
    expect_equals(train_in_parallel(3, options), reference);
  }
}

TEST(DataParallelIdentity, EqualsSequentialForSumsAndClippedGradients) {
  RunOptions options;
  options.loss.reduction = Reduction::sum;
  options.lr = 0.001;
  auto reference = train_sequentially(options);
  expect_equals(train_in_parallel(3, options), reference);

  options = RunOptions();
  const auto unclipped = train_sequentially(options);
  options.strategy.clip_norm = 0.5;
  reference = train_sequentially(options);
  EXPECT_GT(relative_difference(unclipped.parameters, reference.parameters), 1e-4);
  expect_equals(train_in_parallel(2, options), reference);
}

TEST(DataParallelIdentity, GradientNormIsTheNormBeforeClipping) {
  RunOptions options;
  options.lr = 0;
  const auto unclipped = train_sequentially(options);
  options.strategy.clip_norm = unclipped.gradient_norm / 4;
  for (const int size : {1, 3}) {
    for (const auto state : {Sharding::none, Sharding::optimizer}) {
      options.strategy.shard = state;
      expect_equals(train_in_parallel(size, options), unclipped);
    }
  }
}

TEST(DataParallelIdentity, SumEqualsTheMeanTimesTheGlobalBatch) {
  RunOptions options;
  options.data_size = 48;  // two full batches, so the factor is the same in both
  auto reference = train_sequentially(options);
  reference.gradient_norm *= 24;
  options.loss.reduction = Reduction::sum;
  options.lr /= 24;
  expect_equals({train_sequentially(options)}, reference);
  expect_equals(train_in_parallel(2, options), reference);
}

TEST(DataParallelIdentity, EqualsSequentialForEveryOptimizer) {
  for (const auto kind :
       {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::adadelta}) {
    SCOPED_TRACE(name_of(kind));
    RunOptions options;
    options.optimizer = OptimizerOptions();
    options.optimizer.kind = kind;
    options.lr = 0.002;
    options.epochs = 1;
    const auto reference = train_sequentially(options);
    for (const auto& rank : train_in_parallel(2, options)) {
      // These optimizers divide by the gradient's size, which enlarges differences of
      // small gradients.
      EXPECT_LE(relative_difference(rank.parameters, reference.parameters), 1e-9);
    }
  }
}

}  // namespace tandem::data_parallel_identity_test
