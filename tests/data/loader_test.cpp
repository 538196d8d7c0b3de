#include "tandem/data/loader.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"

namespace tandem::loader_test {

using testing::ElementsAre;
using testing::HasSubstr;

// 3 channels of 2 x 4; the label is the sample's number.
constexpr int64_t kImageBytes = 3 * 2 * 4;

uint8_t pixel(int64_t sample, int64_t within) {
  return static_cast<uint8_t>((sample * kImageBytes + within) * 37);
}

Dataset colours(int64_t size) {
  const auto pixel_of = [](int64_t i) {
    return pixel(i / kImageBytes, i % kImageBytes);
  };
  return dataset_of(
      size, make_samples<uint8_t>({3, 2, 4}, size, pixel_of),
      make_samples<uint8_t>({}, size, [](int64_t i) { return i; }));
}

LoaderOptions raw(int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.mean = {0};
  options.std = {1};
  return options;
}

std::vector<int64_t> targets_of(const Batch& batch) {
  const int64_t* first = batch.targets.data_ptr<int64_t>();
  return {first, first + batch.targets.numel()};
}

std::vector<int64_t> epoch_targets(Loader& loader, int64_t epoch, int64_t from = 0) {
  std::vector<int64_t> all;
  Batch batch;
  for (loader.seek(epoch, from); loader.next(batch);) {
    const auto targets = targets_of(batch);
    all.insert(all.end(), targets.begin(), targets.end());
  }
  return all;
}

// Returns whether every image of the batch belongs to its label, as plain p / 255.
bool shows_its_labels(const Batch& batch) {
  const auto inputs = batch.inputs.contiguous().view({batch.count(), kImageBytes});
  for (int64_t i = 0; i < batch.count(); ++i) {
    for (int64_t within = 0; within < kImageBytes; ++within) {
      const auto expected =
          static_cast<float>(pixel(targets_of(batch)[static_cast<size_t>(i)], within)) /
          255.0f;
      if (inputs[i][within].item<float>() != expected) {
        return false;
      }
    }
  }
  return true;
}

TEST(Loader, BatchesHaveTheirPositionsAndTheGlobalCount) {
  // 20 samples over 3 shards, padded: 7 each, in batches of 4 and 3.
  SamplerOptions sampler;
  sampler.num_shards = 3;
  sampler.seed = 5;
  for (sampler.shard = 0; sampler.shard < 3; ++sampler.shard) {
    Loader loader(colours(20), sampler, raw(4));
    EXPECT_EQ(loader.num_batches(), 2);
    sampler.size = 20;
    const auto indices = shard_indices(sampler, 3);
    EXPECT_EQ(epoch_targets(loader, 3), indices);
    Batch batch;
    loader.seek(3);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.count(), 4);
    EXPECT_EQ(batch.first_position, sampler.shard);
    EXPECT_EQ(batch.position_stride, 3);
    EXPECT_EQ(batch.global_count, 12);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.count(), 3);
    EXPECT_EQ(batch.targets.numel(), 3);
    EXPECT_EQ(batch.first_position, 12 + sampler.shard);
    EXPECT_EQ(batch.position_stride, 3);
    EXPECT_EQ(batch.global_count, 9);
    EXPECT_TRUE(shows_its_labels(batch));
    EXPECT_FALSE(loader.next(batch));
    EXPECT_FALSE(loader.next(batch));
  }
}

TEST(Loader, EachEpochHasARepeatableOrder) {
  SamplerOptions sampler;
  sampler.seed = 9;
  Loader loader(colours(40), sampler, raw(7));
  const auto first = epoch_targets(loader, 0);
  const auto second = epoch_targets(loader, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch_targets(loader, 0), first);
  Loader again(colours(40), sampler, raw(7));
  EXPECT_EQ(epoch_targets(again, 1), second);
  sampler.seed = 8;
  Loader other(colours(40), sampler, raw(7));
  EXPECT_NE(epoch_targets(other, 0), first);
}

TEST(Loader, SeekGivesTheSameBatchAsReading) {
  SamplerOptions sampler;
  sampler.num_shards = 2;
  sampler.shard = 1;
  Loader loader(colours(40), sampler, raw(3));
  const auto whole = epoch_targets(loader, 4);
  EXPECT_EQ(whole.size(), 20u);
  const auto tail = epoch_targets(loader, 4, 30);
  EXPECT_EQ(tail, std::vector<int64_t>(whole.begin() + 15, whole.end()));
  Loader fresh(colours(40), sampler, raw(3));
  Batch batch;
  fresh.seek(4, 30);
  ASSERT_TRUE(fresh.next(batch));
  EXPECT_EQ(batch.first_position, 31);
  EXPECT_TRUE(shows_its_labels(batch));
}

TEST(Loader, BatchesStayValidForTheNumberOfBuffers) {
  auto options = raw(2);
  options.num_buffers = 3;
  Loader loader(colours(12), in_order(), options);
  std::vector<Batch> taken(4);
  loader.seek(0);
  for (auto& batch : taken) {
    ASSERT_TRUE(loader.next(batch));
    // This batch and the two previous batches.
    for (const auto* kept = &taken[0]; kept <= &batch; ++kept) {
      if (&batch - kept < 3) {
        EXPECT_TRUE(shows_its_labels(*kept));
        EXPECT_EQ(targets_of(*kept)[0], 2 * (kept - &taken[0]));
      }
    }
  }
  EXPECT_EQ(taken[3].inputs.data_ptr(), taken[0].inputs.data_ptr());
}

// Two ranks, two micro-batches of four: the samples are dealt to all four in turn.
TEST(Loader, DealsAStepsSamplesToMicroBatchesAsToShards) {
  auto sampler = in_order(2, 1);
  sampler.tail = Tail::keep;
  auto options = raw(4);
  options.micro_batches = 2;
  options.num_buffers = 5;
  // 16 in the first step, 5 in the second: positions 16 to 20.
  Loader loader(colours(21), sampler, options);
  EXPECT_EQ(loader.num_steps(), 2);
  EXPECT_EQ(loader.num_batches(), 4);
  loader.seek(0);
  std::vector<std::vector<int64_t>> taken;
  std::vector<int64_t> global_counts;
  for (Batch batch; loader.next(batch);) {
    taken.push_back(targets_of(batch));
    global_counts.push_back(batch.global_count);
    EXPECT_EQ(batch.first_position, taken.back()[0]);
    EXPECT_EQ(batch.position_stride, 4);
    EXPECT_TRUE(batch.samples.equal(batch.targets));
  }
  EXPECT_THAT(
      taken, ElementsAre(
                 ElementsAre(1, 5, 9, 13), ElementsAre(3, 7, 11, 15), ElementsAre(17),
                 ElementsAre(19)));
  EXPECT_THAT(global_counts, ElementsAre(16, 16, 5, 5));
}

// 10 samples over 3 shards of 2 micro-batches of 1: a step has 6, the last step 4.
TEST(Loader, CanMakeEqualNumbersOfBatchesForAllShards) {
  for (const int64_t shard : {0, 1, 2}) {
    SCOPED_TRACE(shard);
    auto options = raw(1);
    options.micro_batches = 2;
    auto sampler = in_order(3, shard);
    sampler.tail = Tail::keep;
    const bool first = shard == 0;
    const auto counts = [&] {
      Loader loader(colours(10), sampler, options);
      loader.seek(0);
      EXPECT_EQ(loader.num_batches(), first ? 4 : 3);
      std::vector<int64_t> all;
      Batch batch;
      while (loader.next(batch)) {
        EXPECT_EQ(batch.count(), batch.targets.numel());
        EXPECT_EQ(batch.global_count, all.size() < 2 ? 6 : 4);
        all.push_back(batch.count());
      }
      return all;
    };
    EXPECT_EQ(counts().size(), first ? 4u : 3u);
    options.empty_batches = true;
    EXPECT_EQ(counts(), (std::vector<int64_t>{1, 1, 1, first ? 1 : 0}));
  }
}

TEST(Loader, ABatchLargerThanTheDataUsesTheMemoryOfTheData) {
  auto options = raw(int64_t{1} << 40);
  options.num_buffers = int64_t{1} << 40;
  Loader loader(colours(6), in_order(), options);
  loader.seek(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.count(), 6);
  EXPECT_EQ(batch.inputs.storage().nbytes(), 6u * kImageBytes * sizeof(float));
}

TEST(Loader, ALimitedDatasetEndsAtItsLimit) {
  Dataset limited = colours(10);
  limited.size = 4;
  Loader loader(limited, SamplerOptions{}, raw(3));
  EXPECT_EQ(loader.num_batches(), 2);
  EXPECT_THAT(epoch_targets(loader, 0), testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST(Loader, NormalizesTargets) {
  const auto data = dataset_of(
      4, make_samples<float>({1}, 4, [](int64_t i) { return i; }),
      make_samples<float>({2}, 4, [](int64_t i) { return 10 * i; }));
  auto options = raw(4);
  options.target_mean = {20, 30};
  options.target_std = {2, 5};
  Loader loader(data, in_order(), options);
  Batch batch;
  loader.seek(0);
  ASSERT_TRUE(loader.next(batch));
  const auto expected =
      at::tensor({-10., -4., 0., 0., 10., 4., 20., 8.}, at::kFloat).view({4, 2});
  EXPECT_TRUE(batch.targets.equal(expected)) << batch.targets;
  options.target_std = {1, 2, 3};
  expect_error<ConfigError>(
      [&] { Loader(data, in_order(), options); },
      {"2 target means and 3 target standard deviations, expected 1 or 2"});
  expect_error<ConfigError>(
      [&] { Loader(colours(4), in_order(), options); },
      {"--target-mean", "are classes"});
}

TEST(Loader, InvalidOptionsAreRejected) {
  const auto message = [](const LoaderOptions& options) {
    return error_of<ConfigError>([&] { Loader(colours(4), in_order(), options); });
  };
  EXPECT_THAT(message(raw(0)), HasSubstr("batch_size is 0"));
  auto options = raw(2);
  options.pad = -1;
  EXPECT_THAT(message(options), HasSubstr("pad"));
  expect_error<ConfigError>([] { Loader(colours(0), in_order(), raw(2)); }, {"empty"});
  EXPECT_THROW(
      {
        Loader loader(colours(4), in_order(), raw(2));
        Batch batch;
        EXPECT_FALSE(loader.next(batch));
      },
      InternalError);
}

}  // namespace tandem::loader_test
