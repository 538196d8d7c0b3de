// Loss::ignore_index: the mean is over the counted samples of the global batch.

#include <gtest/gtest.h>

#include <string>

#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem::ignored_samples_test {

RunOptions options_of(StrategyKind kind, int64_t micro_batches) {
  RunOptions options;
  options.strategy.kind = kind;
  options.layers = without_dropout(small_net_layers());
  options.loss.kind = LossKind::cross_entropy;
  options.loss.label_smoothing = 0.1;
  options.loss.ignore_index = 3;
  options.micro_batches = micro_batches;
  options.tail = Tail::keep;
  return options;
}

void expect_as_one_rank(StrategyKind kind, int size, int64_t micro_batches) {
  SCOPED_TRACE(std::string(name_of(kind)) + " on " + std::to_string(size));
  RunOptions options = options_of(kind, micro_batches);
  if (kind == StrategyKind::pipeline) {
    options.strategy.stages = 3;
    options.strategy.replicas = size / 3;
  }
  const auto whole = train_sequentially(options_of(kind, 1));
  const auto ranks = on_each_rank("thread", size, [&](Communicator& comm) {
    return train_small_net(comm, options);
  });
  EXPECT_LE(relative_difference(ranks[0].parameters, whole.parameters), 1e-12);
  auto sums = at::zeros({3}, at::kDouble);
  for (const auto& rank : ranks) {
    sums = rank.sums.defined() ? sums + rank.sums : sums;
  }
  EXPECT_LE(relative_difference(sums, whole.sums), 1e-12);
  // 60 samples in each of two epochs, without those of class 3.
  EXPECT_EQ(sums[2].item<int64_t>(), whole.sums[2].item<int64_t>());
  EXPECT_LT(sums[2].item<int64_t>(), 2 * 60 - 10);
}

TEST(IgnoredSamples, LeaveTheMeanOverTheGlobalBatch) {
  for (const int size : {1, 2, 3}) {
    for (const int64_t micro_batches : {1, 2}) {
      expect_as_one_rank(StrategyKind::data_parallel, size, micro_batches);
    }
  }
  expect_as_one_rank(StrategyKind::pipeline, 3, 2);
  expect_as_one_rank(StrategyKind::pipeline, 6, 1);
  expect_as_one_rank(StrategyKind::parameter_server, 3, 2);
}

// Each rank's mean is over its own counted samples, as one rank with these samples has.
TEST(IgnoredSamples, LeaveTheMeanOfARankThatStepsAlone) {
  RunOptions options = options_of(StrategyKind::averaging, 2);
  options.strategy.average_every = StrategyOptions::kAtTheEnd;
  const auto comm = make_single_communicator();
  const auto alone = train_small_net(*comm, options);
  EXPECT_LE(
      relative_difference(
          alone.parameters,
          train_sequentially(options_of(StrategyKind::sequential, 1)).parameters),
      1e-12);
}

}  // namespace tandem::ignored_samples_test
