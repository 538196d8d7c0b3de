#include "tandem/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::sampler_test {

using testing::HasSubstr;

using Shards = std::vector<std::vector<int64_t>>;

constexpr int64_t kWorlds[] = {1, 2, 3, 4, 8};
constexpr int64_t kSizes[] = {1, 7, 10, 100};

Shards all_shards(SamplerOptions options, int64_t epoch) {
  Shards shards;
  for (options.shard = 0; options.shard < options.num_shards; ++options.shard) {
    shards.push_back(shard_indices(options, epoch));
    EXPECT_EQ(static_cast<int64_t>(shards.back().size()), shard_size(options));
  }
  return shards;
}

// The tables below are the output, with Debian's PyTorch 1.13, of: s =
// DistributedSampler(dataset, world, rank, shuffle=shuffle, seed=seed,
// drop_last=drop_last); s.set_epoch(epoch); list(s)
TEST(Sampler, EqualsPythonsDistributedSampler) {
  struct Case {
    SamplerOptions options;
    int64_t epoch;
    Shards expected;
  };
  // Size, shards, shard, seed, shuffle, tail; epoch.
  const std::vector<Case> cases = {
      {{7, 3, 0, 0, true, Tail::pad}, 2, {{2, 0, 5}, {4, 6, 2}, {3, 1, 4}}},
      {{7, 3, 0, 0, true, Tail::drop}, 2, {{2, 0}, {4, 6}, {3, 1}}},
      {{10, 4, 0, 5, true, Tail::pad}, 1, {{0, 8, 4}, {7, 3, 6}, {5, 9, 0}, {1, 2, 7}}},
      {{7, 2, 0, 0, false, Tail::pad}, 0, {{0, 2, 4, 6}, {1, 3, 5, 0}}},
      {{9, 3, 0, 1'234'567'890'123, true, Tail::pad},
       40,
       {{2, 1, 5}, {8, 3, 7}, {6, 4, 0}}},
      {{1, 4, 0, 3, true, Tail::pad}, 9, {{0}, {0}, {0}, {0}}},
      {{3, 8, 0, 1, true, Tail::pad}, 0, {{1}, {2}, {0}, {1}, {2}, {0}, {1}, {2}}},
      {{3, 8, 0, 1, true, Tail::drop}, 0, {{}, {}, {}, {}, {}, {}, {}, {}}}};
  for (const auto& [options, epoch, expected] : cases) {
    EXPECT_EQ(all_shards(options, epoch), expected)
        << options.size << " over " << options.num_shards;
  }
}

TEST(Sampler, BlocksAreReadByOneShardEachInEveryEpoch) {
  SamplerOptions options;
  options.size = 12;
  options.num_shards = options.blocks = 3;
  Shards before;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    auto shards = all_shards(options, epoch);
    EXPECT_NE(shards, before);
    before = shards;
    for (int64_t shard = 0; shard < 3; ++shard) {
      auto& indices = shards[static_cast<size_t>(shard)];
      std::sort(indices.begin(), indices.end());
      const int64_t first = 4 * shard;
      EXPECT_EQ(
          indices, std::vector<int64_t>({first, first + 1, first + 2, first + 3}));
    }
  }
}

TEST(Sampler, BlocksResumeAndWorkWithOneShard) {
  SamplerOptions options;
  options.size = 12;
  options.num_shards = options.blocks = 3;
  const auto whole = all_shards(options, 5);
  options.first_position = 6;
  const auto rest = all_shards(options, 5);
  for (size_t shard = 0; shard < 3; ++shard) {
    EXPECT_EQ(
        rest[shard],
        std::vector<int64_t>(whole[shard].begin() + 2, whole[shard].end()));
  }
  // One shard reads the samples of all three, in turn.
  options.num_shards = 1;
  options.first_position = 0;
  const auto one = all_shards(options, 5)[0];
  for (size_t position = 0; position < 12; ++position) {
    EXPECT_EQ(one[position], whole[position % 3][position / 3]);
  }
}

TEST(Sampler, BlocksThatDoNotDivideAreRejected) {
  SamplerOptions options;
  options.size = 12;
  options.blocks = 5;
  expect_error<ConfigError>([&] { return shard_indices(options, 0); }, {"5 blocks"});
  options.blocks = 4;
  options.first_position = 6;
  expect_error<ConfigError>(
      [&] { return shard_indices(options, 0); }, {"the previous number of ranks"});
}

TEST(Sampler, KeepVisitsEachSampleOnce) {
  for (const int64_t size : kSizes) {
    for (const int64_t world : kWorlds) {
      for (const bool shuffle : {false, true}) {
        std::vector<int64_t> seen;
        for (const auto& shard :
             all_shards({size, world, 0, 11, shuffle, Tail::keep}, 2)) {
          EXPECT_GE(static_cast<int64_t>(shard.size()), size / world);
          EXPECT_LE(static_cast<int64_t>(shard.size()), size / world + 1);
          seen.insert(seen.end(), shard.begin(), shard.end());
        }
        std::sort(seen.begin(), seen.end());
        std::vector<int64_t> each(static_cast<size_t>(size));
        std::iota(each.begin(), each.end(), int64_t{0});
        EXPECT_EQ(seen, each) << size << " over " << world;
      }
    }
  }
}

TEST(Sampler, PositionsCountAcrossShardsAndMarkPadding) {
  // 7 samples over 3 shards: places 0..2, positions 0..8, of which 7 and 8 repeat.
  SamplerOptions options{7, 3, 0, 0, false, Tail::pad};
  std::vector<bool> padding;
  for (int64_t position = 0; position < 9; ++position) {
    options.shard = position % 3;
    EXPECT_EQ(position_of(options, position / 3), position);
    padding.push_back(is_padding(options, position));
  }
  EXPECT_EQ(
      padding,
      (std::vector<bool>{false, false, false, false, false, false, false, true, true}));
}

TEST(Sampler, InvalidSizesAreRejected) {
  const auto message = [](SamplerOptions options) {
    return error_of<ConfigError>([&] { return shard_indices(options, 0); });
  };
  EXPECT_THAT(message({0, 1, 0}), HasSubstr("empty"));
  EXPECT_THAT(message({5, 0, 0}), HasSubstr("shard is 0"));
  EXPECT_THAT(message({5, 2, 2}), HasSubstr("shard is 2"));
  EXPECT_THAT(message({5, 2, -1}), HasSubstr("shard is -1"));
}

}  // namespace tandem::sampler_test
