// Batches that are divided among shards, as torch.nn.DataParallel divides its batches.

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/loader.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::divided_batch_test {

using testing::ElementsAre;

using Samples = std::vector<int64_t>;

SamplerOptions divided(
    int64_t size, int64_t batch, int64_t num_shards, int64_t shard = 0) {
  SamplerOptions options;
  options.size = size;
  options.num_shards = num_shards;
  options.shard = shard;
  options.seed = 11;
  options.tail = Tail::keep;
  options.batch = batch;
  return options;
}

TEST(DividedBatch, ChunksEqualTorchs) {
  for (int64_t count = 1; count <= 70; ++count) {
    for (int64_t shards = 1; shards <= 8; ++shards) {
      const auto chunks = at::arange(count).chunk(shards);
      for (int64_t shard = 0; shard < shards; ++shard) {
        SCOPED_TRACE(testing::Message() << shard << " of " << count << "/" << shards);
        const Chunk mine = chunk_of(count, shards, shard);
        const bool has = shard < static_cast<int64_t>(chunks.size());
        ASSERT_EQ(mine.count, has ? chunks[static_cast<size_t>(shard)].numel() : 0);
        if (has) {
          const auto& theirs = chunks[static_cast<size_t>(shard)];
          ASSERT_EQ(mine.first, theirs[0].item<int64_t>());
        }
      }
    }
  }
}

// From the beginning, the last of four shards gets nothing. After position 1, the step
// of eight samples has two for each.
TEST(DividedBatch, AShardMayHaveMoreSamplesAfterAPosition) {
  for (const int64_t micro_batches : {1, 3}) {
    const auto sampler = divided(9, 9, 4, 3);
    ASSERT_EQ(shard_size(sampler), 0);
    LoaderOptions options;
    options.batch_size = 9 / micro_batches;
    options.micro_batches = micro_batches;
    options.num_buffers = micro_batches + 1;
    Loader loader(noise_images(9), sampler, options);
    loader.seek(0, 1);
    Samples read;
    Batch batch;
    std::vector<Batch> batches;
    while (loader.next(batch)) {
      batches.push_back(batch);
    }
    for (const auto& one : batches) {
      for (int64_t i = 0; i < one.count(); ++i) {
        read.push_back(one.samples[i].item<int64_t>());
      }
    }
    auto rest = sampler;
    rest.first_position = 1;
    EXPECT_EQ(read, shard_indices(rest, 0)) << micro_batches;
    EXPECT_EQ(read.size(), 2u);
  }
}

// If the chunks of each batch are joined, the shards have the order of one shard.
void expect_batches_of_one_shard(const SamplerOptions& of_one, int64_t epoch) {
  const Samples order = shard_indices(of_one, epoch);
  for (int64_t shards = 1; shards <= 5; ++shards) {
    std::vector<int> read(order.size(), 0);
    for (int64_t shard = 0; shard < shards; ++shard) {
      SamplerOptions options = of_one;
      options.num_shards = shards;
      options.shard = shard;
      const Samples mine = shard_indices(options, epoch);
      ASSERT_EQ(static_cast<int64_t>(mine.size()), shard_size(options));
      ASSERT_EQ(end_position(options), of_one.size);
      for (size_t place = 0; place < mine.size(); ++place) {
        const int64_t position = position_of(options, static_cast<int64_t>(place));
        const int64_t at = position - of_one.first_position;
        const int64_t batch = at / of_one.batch;
        const int64_t count = std::min(
            of_one.batch, of_one.size - of_one.first_position - batch * of_one.batch);
        const Chunk chunk = chunk_of(count, shards, shard);
        const int64_t in_chunk = at - batch * of_one.batch - chunk.first;
        ASSERT_TRUE(in_chunk >= 0 && in_chunk < chunk.count)
            << position << " is not in shard " << shard << " of " << shards;
        ASSERT_EQ(mine[place], order[static_cast<size_t>(at)]);
        ++read[static_cast<size_t>(at)];
      }
    }
    EXPECT_EQ(read, std::vector<int>(order.size(), 1)) << shards;
  }
}

TEST(DividedBatch, ShardsReadTheBatchesOfOneShardFromAnyPosition) {
  for (const int64_t size : {1, 7, 64, 100}) {
    for (const int64_t batch : {1, 3, 4, 10, 64, 200}) {
      for (const int64_t first : {int64_t{0}, batch, int64_t{5}}) {
        if (first < size) {
          SCOPED_TRACE(
              testing::Message() << size << " by " << batch << " from " << first);
          auto options = divided(size, batch, 1);
          options.first_position = first;
          expect_batches_of_one_shard(options, 3);
        }
      }
    }
  }
}

TEST(DividedBatch, RepeatsAndOmitsNoSample) {
  for (const Tail tail : {Tail::pad, Tail::drop}) {
    auto options = divided(10, 4, 3);
    options.tail = tail;
    expect_error<ConfigError>([&] { return shard_size(options); }, {"Tail::keep"});
  }
  auto blocks = divided(10, 4, 2);
  blocks.blocks = 2;
  expect_error<ConfigError>([&] { return shard_size(blocks); }, {"one block"});
}

// --- the loader ---

// A shard's part of each step, by micro-batches.
struct Step {
  std::vector<Samples> micro_batches;
  int64_t global_count = 0;
};

Loader loader_of(
    const SamplerOptions& sampler, int64_t micro_batches = 1,
    bool empty_batches = false) {
  LoaderOptions options;
  options.batch_size = sampler.batch / micro_batches;
  options.micro_batches = micro_batches;
  options.num_buffers = micro_batches + 1;
  options.empty_batches = empty_batches;
  return {noise_images(sampler.size), sampler, options};
}

std::vector<Step> steps_of(
    const SamplerOptions& sampler, int64_t micro_batches = 1,
    bool empty_batches = false) {
  Loader loader = loader_of(sampler, micro_batches, empty_batches);
  loader.seek(2);
  std::vector<Step> steps(static_cast<size_t>(loader.num_steps()));
  const Samples indices = shard_indices(sampler, 2);
  size_t place = 0;
  for (auto& step : steps) {
    Batch batch;
    size_t in_step = 0;
    while (static_cast<int64_t>(step.micro_batches.size()) < micro_batches &&
           loader.next(batch)) {
      const auto* first = batch.samples.data_ptr<int64_t>();
      step.micro_batches.emplace_back(first, first + batch.samples.numel());
      step.global_count = batch.global_count;
      EXPECT_EQ(batch.position_stride, micro_batches);
      EXPECT_EQ(batch.count(), batch.samples.numel());
      const auto micro = static_cast<int64_t>(step.micro_batches.size()) - 1;
      for (int64_t i = 0; i < batch.count(); ++i, ++in_step) {
        const auto own = place + static_cast<size_t>(micro + i * micro_batches);
        EXPECT_EQ(first[i], indices[own]);
        EXPECT_EQ(
            batch.first_position + i * batch.position_stride,
            position_of(sampler, static_cast<int64_t>(own)));
      }
    }
    place += in_step;
  }
  EXPECT_EQ(place, indices.size());
  Batch none;
  EXPECT_FALSE(loader.next(none));
  return steps;
}

std::vector<Samples> counts_of(const std::vector<Step>& steps) {
  std::vector<Samples> counts;
  for (const auto& step : steps) {
    counts.emplace_back();
    for (const auto& micro_batch : step.micro_batches) {
      counts.back().push_back(static_cast<int64_t>(micro_batch.size()));
    }
  }
  return counts;
}

// 150 samples: two batches of 64, and a last batch of 22, which is divided into 8, 8
// and 6.
TEST(DividedBatch, LoadersOfAllShardsTogetherReadOneBatch) {
  for (int64_t shards = 1; shards <= 4; ++shards) {
    const auto whole = steps_of(divided(150, 64, 1));
    ASSERT_EQ(whole.size(), 3u);
    std::vector<Samples> together(3);
    for (int64_t shard = 0; shard < shards; ++shard) {
      const auto mine = steps_of(divided(150, 64, shards, shard));
      ASSERT_EQ(mine.size(), 3u);
      for (size_t step = 0; step < 3; ++step) {
        ASSERT_EQ(mine[step].micro_batches.size(), 1u);
        EXPECT_EQ(mine[step].global_count, step < 2 ? 64 : 22);
        const auto& samples = mine[step].micro_batches[0];
        together[step].insert(together[step].end(), samples.begin(), samples.end());
      }
    }
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_EQ(together[step], whole[step].micro_batches[0]) << shards;
    }
  }
  const auto sizes = [](int64_t shard) {
    return counts_of(steps_of(divided(150, 64, 3, shard)));
  };
  EXPECT_THAT(sizes(0), ElementsAre(Samples{22}, Samples{22}, Samples{8}));
  EXPECT_THAT(sizes(1), ElementsAre(Samples{22}, Samples{22}, Samples{8}));
  EXPECT_THAT(sizes(2), ElementsAre(Samples{20}, Samples{20}, Samples{6}));
}

// The third shard has none of 4 samples, and one of the last 3; the fourth shard has 1
// of 10 and 2 of 8.
TEST(DividedBatch, AShardMayHaveNoSamplesInAStep) {
  const auto third = steps_of(divided(11, 4, 3, 2));
  EXPECT_THAT(counts_of(third), ElementsAre(Samples{}, Samples{}, Samples{1}));
  EXPECT_EQ(loader_of(divided(11, 4, 3, 2)).num_batches(), 1);
  const auto fourth = steps_of(divided(28, 10, 4, 3));
  EXPECT_THAT(counts_of(fourth), ElementsAre(Samples{1}, Samples{1}, Samples{2}));
  EXPECT_EQ(loader_of(divided(28, 10, 4, 3)).num_batches(), 3);
  // Four shards of a batch of two: two of the shards have no sample.
  EXPECT_THAT(
      counts_of(steps_of(divided(4, 2, 4, 3))), ElementsAre(Samples{}, Samples{}));
  EXPECT_EQ(loader_of(divided(4, 2, 4, 3)).num_batches(), 0);
}

// Chunks of 4, 4 and 2, dealt to micro-batches in turn; the last step has 2, 2 and 1.
TEST(DividedBatch, AChunkIsDealtToMicroBatches) {
  const auto first = steps_of(divided(15, 10, 3, 0), 2);
  EXPECT_THAT(counts_of(first), ElementsAre(Samples{2, 2}, Samples{1, 1}));
  const auto last = steps_of(divided(15, 10, 3, 2), 2);
  EXPECT_THAT(counts_of(last), ElementsAre(Samples{1, 1}, Samples{1}));
  EXPECT_EQ(loader_of(divided(15, 10, 3, 2), 2).num_batches(), 3);
}

TEST(DividedBatch, EveryShardCanHaveTheSameNumberOfMicroBatches) {
  const auto third = steps_of(divided(15, 10, 3, 2), 2, true);
  EXPECT_THAT(counts_of(third), ElementsAre(Samples{1, 1}, Samples{1, 0}));
  const auto without = steps_of(divided(11, 4, 3, 2), 1, true);
  EXPECT_THAT(counts_of(without), ElementsAre(Samples{0}, Samples{0}, Samples{1}));
}

TEST(DividedBatch, OfAnotherSizeThanTheStepIsRejected) {
  LoaderOptions options;
  options.batch_size = 4;
  expect_error<ConfigError>(
      [&] { Loader(noise_images(20), divided(20, 6, 2), options); },
      {"SamplerOptions::batch is 6, expected 4"});
}

}  // namespace tandem::divided_batch_test
