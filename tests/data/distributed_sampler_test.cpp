// The sampler in LibTorch's data loaders. sampler_parity_test.cpp compares the order
// with PyTorch.

#include "tandem/data/distributed_sampler.h"

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/serialize.h>

#include <numeric>
#include <sstream>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::distributed_sampler_test {

using testing::HasSubstr;

std::vector<int64_t> all_of(DistributedSampler& sampler, size_t batch_size = 3) {
  std::vector<int64_t> indices;
  while (const auto batch = sampler.next(batch_size)) {
    EXPECT_LE(batch->size(), batch_size);
    indices.insert(indices.end(), batch->begin(), batch->end());
  }
  return indices;
}

TEST(DistributedSampler, ReturnsTheIndicesOfTheShardInEveryEpoch) {
  for (const Tail tail : {Tail::pad, Tail::drop}) {
    for (const bool shuffle : {true, false}) {
      const SamplerOptions options{100, 3, 1, 5, shuffle, tail};
      DistributedSampler sampler(options);
      for (const int64_t epoch : {0, 1, 7}) {
        sampler.set_epoch(epoch);
        const auto expected = shard_indices(options, epoch);
        EXPECT_EQ(sampler.size(), static_cast<int64_t>(expected.size()));
        EXPECT_EQ(all_of(sampler), expected);
        EXPECT_EQ(all_of(sampler), std::vector<int64_t>());
        sampler.reset();
        EXPECT_EQ(all_of(sampler), expected);
      }
    }
  }
}

// The values in the order of a loader, which are the indices.
template <typename Loader>
std::vector<int64_t> values_of(Loader& loader) {
  std::vector<int64_t> values;
  for (const auto& batch : loader) {
    const auto flat = batch.data.flatten();
    values.insert(
        values.end(), flat.template data_ptr<int64_t>(),
        flat.template data_ptr<int64_t>() + flat.numel());
  }
  return values;
}

TEST(DistributedSampler, SetEpochReachesTheCopyInALoaderWithWorkers) {
  const SamplerOptions options{101, 2, 1};
  for (const size_t workers : {0, 1, 3}) {
    DistributedSampler sampler(options);
    auto numbers = torch::data::datasets::TensorDataset(at::arange(101));
    auto loader = torch::data::make_data_loader(
        numbers.map(torch::data::transforms::Stack<torch::data::TensorExample>()),
        sampler, torch::data::DataLoaderOptions(8).workers(workers));
    for (const int64_t epoch : {0, 3, 1}) {
      sampler.set_epoch(epoch);
      EXPECT_EQ(values_of(*loader), shard_indices(options, epoch));
    }
    sampler.set_epoch(2, 40);
    SamplerOptions rest = options;
    rest.first_position = 40;
    EXPECT_EQ(values_of(*loader), shard_indices(rest, 2));
  }
}

// Two ranks read a part of an epoch, and three ranks read the rest.
TEST(DistributedSampler, ContinuesWithAnotherNumberOfRanks) {
  std::vector<int64_t> seen;
  std::stringstream saved;
  for (const int64_t rank : {0, 1}) {
    DistributedSampler sampler({60, 2, rank});
    sampler.set_epoch(4);
    const auto batch = sampler.next(9);
    seen.insert(seen.end(), batch->begin(), batch->end());
    EXPECT_EQ(sampler.position(), 18);
    torch::serialize::OutputArchive archive;
    sampler.save(archive);
    saved.str("");
    archive.save_to(saved);
  }
  for (const int64_t rank : {0, 1, 2}) {
    DistributedSampler sampler({60, 3, rank});
    saved.seekg(0);
    torch::serialize::InputArchive archive;
    archive.load_from(saved);
    sampler.load(archive);
    EXPECT_EQ(sampler.epoch(), 4);
    // As a loader does before it reads.
    sampler.reset();
    EXPECT_EQ(sampler.size(), 14);
    const auto rest = all_of(sampler);
    seen.insert(seen.end(), rest.begin(), rest.end());
  }
  std::sort(seen.begin(), seen.end());
  std::vector<int64_t> expected(60);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST(DistributedSampler, ResetAcceptsANewSize) {
  DistributedSampler sampler({10, 2, 0});
  sampler.reset(31);
  EXPECT_EQ(sampler.size(), 16);
  EXPECT_EQ(all_of(sampler), shard_indices({31, 2, 0}, 0));
}

TEST(DistributedSampler, RejectsInvalidOptions) {
  const auto refused = [](const SamplerOptions& options) {
    return error_of<ConfigError>([&] { DistributedSampler sampler(options); });
  };
  EXPECT_THAT(refused({10, 2, 2}), HasSubstr("shard is 2, expected less than"));
  SamplerOptions divided{10, 2, 0};
  divided.batch = 4;
  EXPECT_THAT(refused(divided), HasSubstr("batch is 4, expected 0"));
}

}  // namespace tandem::distributed_sampler_test
