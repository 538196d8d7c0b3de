// Compares batch norm over all ranks with one rank that has all samples.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/parallel/identity.h"

namespace tandem::batch_norm_identity_test {

// Parameters and running statistics are compared.
class SyncedNormIdentity : public testing::TestWithParam<Division> {};

TEST_P(SyncedNormIdentity, EqualsTheWholeBatch) {
  const Division& division = GetParam();
  RunOptions options;
  options.layers = convnet_bn_layers();
  options.loss.kind = LossKind::cross_entropy;
  options.data_size = division.data_size;
  options.tail = Tail::keep;
  const auto reference = train_sequentially(options);
  options.strategy.sync = division.sync;
  options.strategy.buffers = BufferSync::sync;
  double largest = 0;
  const auto ranks = train_in_parallel(division.ranks, options, division.backend);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.sha256, ranks[0].sha256);
    EXPECT_TRUE(rank.buffers.equal(ranks[0].buffers));
    EXPECT_LE(relative_difference(rank.buffers, reference.buffers), division.tolerance);
    largest =
        std::max(largest, relative_difference(rank.parameters, reference.parameters));
  }
  RecordProperty("relative_difference", testing::PrintToString(largest));
  EXPECT_LE(largest, division.tolerance);
  // Statistics of each rank's own samples give different results.
  options.strategy.buffers = BufferSync::off;
  const auto apart = train_in_parallel(division.ranks, options, division.backend);
  if (division.ranks > 1) {
    EXPECT_GT(relative_difference(apart[0].parameters, reference.parameters), 1e-3);
  }
}

// With 49 samples the last step has one sample, and all ranks but one have none.
const Division kBatchNormDivisions[] = {
    {"one_rank", 1, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"two_threads", 2, "thread", kOverlap, 1, 1, 60, kTolerance},
    {"two_threads_uneven", 2, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"two_gloo_uneven", 2, "gloo", kOverlap, 1, 1, 61, kTolerance},
    {"two_shm_uneven", 2, "shm", kOverlap, 1, 1, 61, kTolerance},
    {"two_gloo_without_samples", 2, "gloo", kParameter, 1, 1, 49, kTolerance},
    {"three_threads_flat_uneven", 3, "thread", kFlat, 1, 1, 61, kTolerance},
    {"three_gloo_without_samples", 3, "gloo", kOverlap, 1, 1, 49, kTolerance},
    {"four_threads_without_samples", 4, "thread", kOverlap, 1, 1, 49, kTolerance},
};

INSTANTIATE_TEST_SUITE_P(
    Table, SyncedNormIdentity, testing::ValuesIn(kBatchNormDivisions),
    [](const auto& row) { return std::string(row.param.name); });

// Returns the micro-batches of a step, each with the samples of both ranks' loaders.
std::vector<Batch> joined_step(std::vector<Loader>& loaders, int64_t micro_batches) {
  std::vector<Batch> step;
  for (int64_t i = 0; i < micro_batches; ++i) {
    Batch mine;
    Batch other;
    TANDEM_CHECK(loaders[0].next(mine), "the loader has no batch");
    TANDEM_CHECK(loaders[1].next(other), "the loader has no batch");
    mine.inputs = at::cat({mine.inputs, other.inputs});
    mine.targets = at::cat({mine.targets, other.targets});
    step.push_back(mine);
  }
  return step;
}

TEST(SyncBatchNormIdentity, EachMicroBatchHasItsOwnStatisticsOverAllRanks) {
  RunOptions options;
  options.layers = convnet_bn_layers();
  options.data_size = 61;
  options.tail = Tail::keep;
  options.epochs = 1;
  options.micro_batches = 2;
  options.loss.kind = LossKind::cross_entropy;
  options.strategy.buffers = BufferSync::sync;
  const auto ranks = train_in_parallel(2, options);

  std::vector<Loader> loaders;
  for (const int64_t shard : {0, 1}) {
    SamplerOptions sampler;
    sampler.num_shards = 2;
    sampler.shard = shard;
    sampler.seed = options.seed;
    sampler.tail = options.tail;
    LoaderOptions loading;
    loading.batch_size = 6;
    loading.micro_batches = 2;
    loaders.emplace_back(noise_images(options.data_size), sampler, loading);
    loaders.back().seek(0);
  }
  const auto comm = make_single_communicator();
  Replica reference(
      make_small_model(options.layers), *comm, options.strategy, options.optimizer,
      options.loss);
  reference.strategy->start();
  StepContext context;
  context.seed = options.seed;
  context.lr = options.lr;
  for (; context.step < 3; ++context.step) {
    reference.strategy->train_step(joined_step(loaders, 2), context);
  }
  for (const auto& rank : ranks) {
    EXPECT_LE(relative_difference(rank.parameters, reference.parameters()), kTolerance);
    EXPECT_LE(relative_difference(rank.buffers, reference.buffers()), kTolerance);
  }
}

}  // namespace tandem::batch_norm_identity_test
