#include "tandem/parallel/reduce/bucket_plan.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::bucket_plan_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr SyncMode kModes[] = {SyncMode::parameter, SyncMode::flat, SyncMode::overlap};

NamedTensor entry(
    const std::string& name, int64_t numel, at::ScalarType dtype = at::kFloat,
    bool trainable = true) {
  return {name, at::zeros({numel}, dtype).set_requires_grad(trainable)};
}

// The slots begin at 0, 16, 48, 64 and 176, and end at 10, 36, 53, 164 and 179.
ArenaLayout five() {
  return ArenaLayout(
      {entry("a", 10), entry("b", 20), entry("c", 5), entry("d", 100), entry("e", 3)},
      {}, 4);
}

// The begin, end and slots of each bucket.
using Plan = std::vector<std::tuple<int64_t, int64_t, std::vector<size_t>>>;

Plan plan(const ArenaLayout& layout, SyncMode sync, int64_t bucket_bytes) {
  Plan all;
  for (const auto& bucket : plan_buckets(layout, sync, bucket_bytes)) {
    all.emplace_back(bucket.range.begin, bucket.range.end, bucket.slots);
  }
  return all;
}

TEST(BucketPlan, OverlapClosesBucketsBeforeTheyExceedBucketBytes) {
  const auto layout = five();
  // Slots a to c have exactly 53 floats.
  EXPECT_EQ(
      plan(layout, SyncMode::overlap, 53 * 4),
      (Plan{{0, 53, {0, 1, 2}}, {64, 164, {3}}, {176, 179, {4}}}));
  EXPECT_EQ(
      plan(layout, SyncMode::overlap, 53 * 4 - 1),
      (Plan{{0, 36, {0, 1}}, {48, 53, {2}}, {64, 164, {3}}, {176, 179, {4}}}));
  EXPECT_EQ(
      plan(layout, SyncMode::overlap, 131 * 4),
      (Plan{{0, 53, {0, 1, 2}}, {64, 179, {3, 4}}}));
  EXPECT_EQ(
      plan(layout, SyncMode::overlap, 1 << 20), (Plan{{0, 179, {0, 1, 2, 3, 4}}}));
}

TEST(BucketPlan, ParameterHasABucketPerSlotAndFlatOnePerSegment) {
  const Plan each = {
      {0, 10, {0}}, {16, 36, {1}}, {48, 53, {2}}, {64, 164, {3}}, {176, 179, {4}}};
  for (const int64_t bytes : {1, 1 << 20}) {
    EXPECT_EQ(plan(five(), SyncMode::parameter, bytes), each);
    EXPECT_EQ(plan(five(), SyncMode::flat, bytes), (Plan{{0, 179, {0, 1, 2, 3, 4}}}));
  }
  EXPECT_EQ(plan(five(), SyncMode::overlap, 1), each);
}

TEST(BucketPlan, BucketsHaveOneSegmentAndNoFrozenParameters) {
  const ArenaLayout layout(
      {entry("a", 3), entry("frozen", 3, at::kFloat, false),
       entry("wide", 5, at::kDouble), entry("b", 4), entry("wider", 2, at::kDouble)},
      {}, 1);
  for (const auto sync : {SyncMode::flat, SyncMode::overlap}) {
    const auto buckets = plan_buckets(layout, sync, 1 << 20);
    ASSERT_EQ(buckets.size(), 2u);
    EXPECT_EQ(buckets[0].range.segment, 0);
    EXPECT_THAT(buckets[0].slots, ElementsAre(0, 3));
    EXPECT_EQ(buckets[0].range.end, 20);
    EXPECT_EQ(buckets[1].range.segment, 2);
    EXPECT_THAT(buckets[1].slots, ElementsAre(2, 4));
    EXPECT_EQ(buckets[1].range.end, 10);
  }
  // The two float64 slots and the padding between them have 80 bytes.
  EXPECT_EQ(plan_buckets(layout, SyncMode::overlap, 80).size(), 2u);
  EXPECT_EQ(plan_buckets(layout, SyncMode::overlap, 79).size(), 4u);
  const ArenaLayout nothing({entry("frozen", 3, at::kFloat, false)}, {}, 1);
  EXPECT_THAT(plan_buckets(nothing, SyncMode::overlap, 1024), IsEmpty());
}

TEST(BucketPlan, EachSlotIsInOneBucketFromFrontToBack) {
  const auto layout = five();
  for (const auto sync : kModes) {
    for (int64_t bytes = 1; bytes < 1000; bytes += 7) {
      std::vector<size_t> slots;
      int64_t end = 0;
      for (const auto& bucket : plan_buckets(layout, sync, bytes)) {
        EXPECT_GE(bucket.range.begin, end);
        end = bucket.range.end;
        EXPECT_EQ(bucket.range.begin, layout.slots()[bucket.slots.front()].offset);
        EXPECT_EQ(end, layout.slots()[bucket.slots.back()].range().end);
        slots.insert(slots.end(), bucket.slots.begin(), bucket.slots.end());
        if (sync == SyncMode::overlap && bucket.slots.size() > 1) {
          EXPECT_LE(bucket.range.size() * 4, bytes);
        }
      }
      EXPECT_THAT(slots, ElementsAre(0, 1, 2, 3, 4));
    }
  }
}

TEST(BucketPlan, DescriptionsAreEqualOnlyForEqualPlans) {
  const auto described = [](SyncMode sync, int64_t bytes) {
    return describe(plan_buckets(five(), sync, bytes));
  };
  EXPECT_EQ(
      described(SyncMode::overlap, 53 * 4), described(SyncMode::overlap, 53 * 4 + 3));
  EXPECT_EQ(described(SyncMode::overlap, 1), described(SyncMode::parameter, 1));
  EXPECT_NE(
      described(SyncMode::overlap, 53 * 4), described(SyncMode::overlap, 53 * 4 - 1));
  EXPECT_NE(described(SyncMode::flat, 1), described(SyncMode::parameter, 1));
}

TEST(BucketPlan, RejectsBucketBytesBelowOne) {
  for (const auto sync : kModes) {
    for (const int64_t bytes : {0, -1}) {
      expect_error<ConfigError>(
          [&] { plan_buckets(five(), sync, bytes); }, {"--bucket-bytes"});
    }
  }
}

}  // namespace tandem::bucket_plan_test
