#include "tandem/train/scatter.h"
#include "tandem/data/load_dataset.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/subset.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"
#include "tests/parallel/replica.h"
#include "tests/train/thread_run.h"

namespace tandem::scatter_test {

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

std::vector<uint8_t> sample(const Samples& samples, int64_t place) {
  const uint8_t* from = samples.at(place);
  return {from, from + samples.sample_bytes()};
}

std::vector<uint8_t> image(const Dataset& data, int64_t place) {
  return sample(data.inputs, place);
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
  expect_error<DataError>(
      [] { scattered(3, 2); }, {"2 samples cannot be split among 3 ranks"});
}

TEST(Scatter, AnErrorOfRankZeroEndsTheRun) {
  const auto run = [] {
    on_each_rank("thread", 2, [](Communicator& comm) {
      return scatter_dataset(
          []() -> DatasetSplits { throw DataError("[data] no such folder"); }, 1, comm);
    });
  };
  expect_error<DataError>(run, {"no such folder"});
}

// Expects that each rank has a random share of the training part, and all samples of
// the other parts.
void expect_scattered(const DatasetSplits& whole, int size) {
  const auto ranks = on_each_rank("thread", size, [&](Communicator& comm) {
    return scatter_dataset([&] { return whole; }, 3, comm);
  });
  const auto order =
      at::randperm(whole.train.size, at::detail::createCPUGenerator(3), at::kLong);
  const int64_t each = whole.train.size / size;
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto& mine = ranks[static_cast<size_t>(rank)];
    for (const auto part : {&Dataset::inputs, &Dataset::targets}) {
      EXPECT_EQ((mine.train.*part).type, (whole.train.*part).type);
      EXPECT_EQ((mine.train.*part).shape, (whole.train.*part).shape);
      for (int64_t i = 0; i < each; ++i) {
        const int64_t place =
            whole.train.place_of(order[rank * each + i].item<int64_t>());
        EXPECT_EQ(sample(mine.train.*part, i), sample(whole.train.*part, place));
      }
      for (const auto other : {&DatasetSplits::test, &DatasetSplits::validation}) {
        ASSERT_EQ((mine.*other).size, (whole.*other).size);
        EXPECT_EQ((mine.*other).num_shares, 1);
        for (int64_t i = 0; i < (mine.*other).size; ++i) {
          EXPECT_EQ(
              sample(mine.*other.*part, i),
              sample(whole.*other.*part, (whole.*other).place_of(i)));
        }
      }
    }
    EXPECT_EQ(mine.train.tokens, whole.train.tokens);
    EXPECT_FALSE(mine.train.is_sequence);
    EXPECT_EQ(mine.train.num_classes, whole.train.num_classes);
    EXPECT_EQ(mine.train.columns, whole.train.columns);
    EXPECT_EQ(mine.train.mean, whole.train.mean);
    EXPECT_EQ(mine.train.std, whole.train.std);
    EXPECT_EQ(mine.validation.hashes.inputs, hashes_of(whole.validation).inputs);
  }
}

TEST(Scatter, SharesHaveSamplesOfAnyType) {
  const auto number = [](int64_t i) { return 3 * i - 7; };
  const auto floats = make_samples<float>({2, 3}, 31, number);
  const auto indices = make_samples<int64_t>({5}, 31, number);
  const auto bytes = make_samples<uint8_t>({4}, 31, number);
  const auto values = make_samples<float>({3}, 31, number);
  const auto labels = make_samples<int64_t>({}, 31, number);
  auto table = dataset_of(31, floats, values);
  table.columns = "a\n\"b\nc\"\n";
  table.mean = {0.1, 0.2};
  table.std = {1, 3};
  auto tokens = dataset_of(31, bytes, bytes);
  tokens.tokens = tokens.is_sequence = true;
  for (const auto& data :
       {table, dataset_of(31, indices, labels), dataset_of(31, floats, indices),
        tokens}) {
    for (const int size : {2, 3}) {
      expect_scattered({data, first_samples(data, 7), {}}, size);
    }
  }
}

TEST(Scatter, SharesOfAMappedFileHaveItsPart) {
  const auto number = [](int64_t i) { return i; };
  auto whole = dataset_of(
      50, make_samples<float>({3}, 50, number), make_samples<int64_t>({}, 50, number));
  whole.inputs.is_mapped = true;
  DatasetSplits splits;
  splits.train = whole;
  splits.test = hold_out(splits.train, 0.2, 1, "test_fraction");
  splits.validation = hold_out(splits.train, 0.1, 2, "validation");
  ASSERT_NE(splits.train.places, nullptr);
  for (const int size : {2, 3}) {
    expect_scattered(splits, size);
  }
}

RunConfig config_of(StrategyKind strategy) {
  RunConfig config = thread_config(ModelKind::net5x5, 2);
  config.exec.precision = Precision::fp64;
  config.strategy.kind = strategy;
  config.data.share = Share::scatter;
  config.training.epochs = 2;
  config.optimizer.lr = 0.05;
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
  expect_error<ConfigError>(
      [&] { train(config, all, *one); },
      {"share scatter gives each of 2 ranks a share"});
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
