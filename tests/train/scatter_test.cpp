#include "tandem/train/scatter.h"
#include "tandem/data/load_dataset.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::scatter_test {

using testing::Each;
using testing::HasSubstr;

DatasetSplits whole_data(int64_t size) {
  DatasetSplits data{noise_images(size), noise_images(10)};
  data.train.name = "noise";
  data.train.class_names = {"a", "b c", "d", "e", "f"};
  return data;
}

std::vector<DatasetSplits> scattered(
    int size, int64_t samples, uint64_t seed = 3,
    const std::string& backend = "thread") {
  return on_each_rank(backend, size, [&](Communicator& comm) {
    const auto load = [&] {
      // The others have no files.
      TANDEM_CHECK(comm.rank() == 0, "a rank that must not read does");
      return whole_data(samples);
    };
    return scatter_dataset(load, seed, comm);
  });
}

std::vector<uint8_t> image(const Dataset& data, int64_t place) {
  const auto from = data.inputs.bytes.begin() + place * data.inputs.sample_bytes();
  return {from, from + data.inputs.sample_bytes()};
}

TEST(Scatter, SharesAreRandomSplitsOfRankZerosData) {
  for (const std::string backend : {"thread", "shm", "gloo"}) {
    const auto whole = whole_data(61).train;
    const auto ranks = scattered(3, 61, 3, backend);
    const auto order = at::randperm(61, at::detail::createCPUGenerator(3), at::kLong);
    for (int64_t rank = 0; rank < 3; ++rank) {
      const auto& mine = ranks[static_cast<size_t>(rank)].train;
      EXPECT_EQ(mine.size, 60);
      EXPECT_EQ(mine.num_shares, 3);
      EXPECT_EQ(mine.first_held, 20 * rank);
      EXPECT_EQ(mine.targets.bytes.size(), 20u);
      EXPECT_EQ(mine.inputs.bytes.size(), 20u * 64);
      EXPECT_EQ(mine.num_classes, 5);
      EXPECT_EQ(mine.name, "noise");
      EXPECT_EQ(mine.hashes.inputs, hashes_of(whole).inputs);
      EXPECT_EQ(mine.hashes.targets, hashes_of(whole).targets);
      EXPECT_EQ(mine.class_names, whole.class_names);
      for (int64_t place = 0; place < 20; ++place) {
        const auto sample = order[20 * rank + place].item<int64_t>();
        EXPECT_EQ(image(mine, place), image(whole, sample));
        EXPECT_EQ(
            mine.targets.bytes[static_cast<size_t>(place)],
            whole.targets.bytes[static_cast<size_t>(sample)]);
      }
    }
  }
}

TEST(Scatter, EveryRankHasTheWholeTestSet) {
  const auto whole = whole_data(61).test;
  for (const auto& rank : scattered(2, 61)) {
    EXPECT_EQ(rank.test.size, 10);
    EXPECT_EQ(rank.test.num_shares, 1);
    EXPECT_EQ(rank.test.inputs.bytes, whole.inputs.bytes);
    EXPECT_EQ(rank.test.targets.bytes, whole.targets.bytes);
  }
}

TEST(Scatter, AnotherSeedGivesOtherShares) {
  EXPECT_EQ(
      scattered(2, 40, 1)[0].train.inputs.bytes,
      scattered(2, 40, 1)[0].train.inputs.bytes);
  EXPECT_NE(
      scattered(2, 40, 1)[0].train.inputs.bytes,
      scattered(2, 40, 2)[0].train.inputs.bytes);
}

TEST(Scatter, ALimitKeepsMoreBytesThanSamples) {
  const auto load = [] {
    auto data = whole_data(61);
    data.train.size = 20;
    data.test.size = 4;
    return data;
  };
  const auto ranks = on_each_rank(
      "thread", 2, [&](Communicator& comm) { return scatter_dataset(load, 3, comm); });
  EXPECT_EQ(ranks[0].train.size, 20);
  EXPECT_EQ(ranks[1].test.targets.bytes.size(), 4u);
}

TEST(Scatter, OneRankKeepsTheData) {
  const auto data = scattered(1, 61)[0].train;
  EXPECT_EQ(data.size, 61);
  EXPECT_EQ(data.num_shares, 1);
  EXPECT_EQ(data.inputs.bytes, whole_data(61).train.inputs.bytes);
}

TEST(Scatter, FewerSamplesThanRanksAreAnError) {
  EXPECT_THAT(
      error_of<DataError>([] { scattered(3, 2); }),
      HasSubstr("2 samples cannot be split among 3 ranks"));
}

TEST(Scatter, AnErrorOfRankZeroEndsTheRun) {
  const auto run = [] {
    on_each_rank("thread", 2, [](Communicator& comm) {
      return scatter_dataset(
          []() -> DatasetSplits { throw DataError("[data] no such folder"); }, 1, comm);
    });
  };
  EXPECT_THAT(error_of<DataError>(run), HasSubstr("no such folder"));
}

RunConfig config_of(StrategyKind strategy) {
  RunConfig config;
  config.model.kind = ModelKind::net5x5;
  config.exec.precision = Precision::fp64;
  config.strategy.kind = strategy;
  config.data.share = Share::scatter;
  config.training.batch_size = 8;
  config.training.epochs = 2;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.05;
  config.ranks.kind = RankKind::thread;
  config.ranks.nproc = 2;
  return config;
}

DatasetSplits digits(int64_t size) {
  return load_dataset("digits", size);
}

// PartitionAudit counts every sample of every share.
TEST(Scatter, EveryStrategyThatReadsByShardsTrainsOnShares) {
  for (const auto strategy : {StrategyKind::data_parallel, StrategyKind::averaging}) {
    for (const int64_t size : {64, 75}) {
      const auto hashes = on_each_rank("thread", 2, [&](Communicator& comm) {
        const auto data = scatter_dataset([&] { return digits(size); }, 1, comm);
        return train(config_of(strategy), data, comm).parameters_sha256;
      });
      EXPECT_EQ(hashes[0], hashes[1]) << name_of(strategy);
    }
  }
}

TEST(Scatter, LoadersOfSharesReadTheSamplesOfOneLoader) {
  const auto config = config_of(StrategyKind::data_parallel);
  const auto shared = on_each_rank("thread", 2, [&](Communicator& comm) {
    const auto data = scatter_dataset([&] { return digits(64); }, 1, comm);
    return data;
  });
  auto all = shared[0];
  for (auto* bytes : {&all.train.inputs.bytes, &all.train.targets.bytes}) {
    std::vector<uint8_t> both(bytes->begin(), bytes->end());
    const auto& other = bytes == &all.train.inputs.bytes
                            ? shared[1].train.inputs.bytes
                            : shared[1].train.targets.bytes;
    both.insert(both.end(), other.begin(), other.end());
    *bytes = both;
  }
  const auto one = make_single_communicator();
  EXPECT_THAT(
      error_of<ConfigError>([&] { train(config, all, *one); }),
      HasSubstr("share scatter gives each of 2 ranks a share"));
  LoaderOptions loading;
  loading.batch_size = 8;
  SamplerOptions sampler;
  sampler.blocks = 2;
  Loader whole(all.train, sampler, loading);
  whole.seek(1);
  for (int shard = 0; shard < 2; ++shard) {
    sampler.num_shards = 2;
    sampler.shard = shard;
    Loader part(shared[static_cast<size_t>(shard)].train, sampler, loading);
    part.seek(1);
    Batch of_whole;
    Batch of_part;
    whole.seek(1);
    ASSERT_TRUE(whole.next(of_whole));
    ASSERT_TRUE(part.next(of_part));
    EXPECT_TRUE(
        of_part.inputs.slice(0, 0, 4).equal(of_whole.inputs.slice(0, shard, 8, 2)));
    EXPECT_TRUE(
        of_part.targets.slice(0, 0, 4).equal(of_whole.targets.slice(0, shard, 8, 2)));
    EXPECT_EQ(of_part.global_count, 16);
  }
}

}  // namespace tandem::scatter_test
