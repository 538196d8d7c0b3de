// Buckets of an arena's layout.

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/core/arena.h"
#include "tests/core/expect.h"

namespace tandem::arena_buckets_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kOneBucket = ArenaLayout::kOneBucket;

NamedTensor entry(
    const std::string& name, int64_t numel, at::ScalarType dtype = at::kFloat,
    bool trainable = true) {
  return {name, at::zeros({numel}, dtype).set_requires_grad(trainable)};
}

// In one bucket, the slots begin at 0, 16, 48, 64 and 176, and end at 10, 36, 53, 164
// and 179.
ArenaLayout five(int64_t bucket_bytes, int64_t divisor = 1) {
  return ArenaLayout(
      {entry("a", 10), entry("b", 20), entry("c", 5), entry("d", 100), entry("e", 3)},
      {}, divisor, {}, bucket_bytes);
}

// The begin, end and slots of each bucket.
using Plan = std::vector<std::tuple<int64_t, int64_t, std::vector<size_t>>>;

Plan plan_of(const ArenaLayout& layout) {
  Plan all;
  for (const auto& bucket : layout.buckets()) {
    all.emplace_back(bucket.range.begin, bucket.range.end, bucket.slots);
  }
  return all;
}

TEST(ArenaBuckets, CloseBeforeTheyExceedBucketBytes) {
  // Slots a to c have exactly 53 floats.
  EXPECT_EQ(
      plan_of(five(53 * 4)),
      (Plan{{0, 64, {0, 1, 2}}, {64, 176, {3}}, {176, 192, {4}}}));
  EXPECT_EQ(
      plan_of(five(53 * 4 - 1)),
      (Plan{{0, 48, {0, 1}}, {48, 64, {2}}, {64, 176, {3}}, {176, 192, {4}}}));
  EXPECT_EQ(plan_of(five(131 * 4)), (Plan{{0, 64, {0, 1, 2}}, {64, 192, {3, 4}}}));
  EXPECT_EQ(plan_of(five(1 << 20)), (Plan{{0, 192, {0, 1, 2, 3, 4}}}));
}

TEST(ArenaBuckets, DivideEvenlyInto64ByteBlocks) {
  // Without the padding at its end, a bucket has at most 53 floats.
  const auto layout = five(53 * 4, 3);
  EXPECT_EQ(
      plan_of(layout), (Plan{{0, 96, {0, 1, 2}}, {96, 240, {3}}, {240, 288, {4}}}));
  EXPECT_EQ(layout.segments()[0].numel, 288);
  EXPECT_EQ(layout.slots()[3].offset, 96);
  const auto part = layout.buckets()[1].part(2, 3);
  EXPECT_EQ(part.begin, 192);
  EXPECT_EQ(part.end, 240);
  expect_error<ConfigError>(
      [&] { (void)layout.buckets()[1].part(0, 5); }, {"144 elements", "divisor"});
}

TEST(ArenaBuckets, FollowTheSyncMode) {
  const Plan each = {
      {0, 16, {0}}, {16, 48, {1}}, {48, 64, {2}}, {64, 176, {3}}, {176, 192, {4}}};
  StrategyOptions options;
  options.bucket_bytes = 1;
  EXPECT_EQ(plan_of(five(options.largest_bucket())), each);
  options.bucket_bytes = 1 << 20;
  options.sync = SyncMode::parameter;
  EXPECT_EQ(plan_of(five(options.largest_bucket())), each);
  options.sync = SyncMode::flat;
  EXPECT_EQ(options.largest_bucket(), kOneBucket);
  EXPECT_EQ(plan_of(five(kOneBucket)), (Plan{{0, 192, {0, 1, 2, 3, 4}}}));
}

TEST(ArenaBuckets, HaveOneSegmentAndNoFrozenParameters) {
  const auto layout = [](int64_t bucket_bytes) {
    return ArenaLayout(
        {entry("a", 3), entry("frozen", 3, at::kFloat, false),
         entry("wide", 5, at::kDouble), entry("b", 4), entry("wider", 2, at::kDouble)},
        {}, 1, {}, bucket_bytes);
  };
  const auto whole = layout(kOneBucket);
  ASSERT_EQ(whole.buckets().size(), 2u);
  EXPECT_EQ(whole.buckets()[0].range.segment, 0);
  EXPECT_THAT(whole.buckets()[0].slots, ElementsAre(0, 3));
  EXPECT_EQ(whole.buckets()[1].range.segment, 2);
  EXPECT_THAT(whole.buckets()[1].slots, ElementsAre(2, 4));
  // The two float64 slots and the padding between them have 80 bytes.
  EXPECT_EQ(layout(80).buckets().size(), 2u);
  EXPECT_EQ(layout(79).buckets().size(), 4u);
  const ArenaLayout nothing({entry("frozen", 3, at::kFloat, false)}, {}, 1);
  EXPECT_THAT(nothing.buckets(), IsEmpty());
}

TEST(ArenaBuckets, CoverTheSegmentAndHaveEachSlotOnce) {
  for (int64_t bytes = 0; bytes < 1000; bytes += 7) {
    const auto layout = five(bytes, 2);
    std::vector<size_t> slots;
    int64_t end = 0;
    for (const auto& bucket : layout.buckets()) {
      EXPECT_EQ(bucket.range.begin, end);
      end = bucket.range.end;
      EXPECT_EQ(bucket.range.begin, layout.slots()[bucket.slots.front()].offset);
      const int64_t used = layout.slots()[bucket.slots.back()].range().end;
      EXPECT_LE(used, end);
      slots.insert(slots.end(), bucket.slots.begin(), bucket.slots.end());
      if (bucket.slots.size() > 1) {
        EXPECT_LE((used - bucket.range.begin) * 4, bytes);
      }
    }
    EXPECT_EQ(end, layout.segments()[0].numel);
    EXPECT_THAT(slots, ElementsAre(0, 1, 2, 3, 4));
  }
}

TEST(ArenaBuckets, ArePartOfTheDescription) {
  EXPECT_EQ(five(53 * 4).describe(), five(53 * 4 + 3).describe());
  EXPECT_EQ(five(1).describe(), five(0).describe());
  EXPECT_NE(five(53 * 4).describe(), five(53 * 4 - 1).describe());
  EXPECT_NE(five(0).describe(), five(kOneBucket).describe());
}

TEST(ArenaBuckets, RejectNegativeSizes) {
  expect_error<ConfigError>([] { five(-1); }, {"bucket_bytes is -1", "--bucket-bytes"});
}

}  // namespace tandem::arena_buckets_test
