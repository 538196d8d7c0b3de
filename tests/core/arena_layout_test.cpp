#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/arena.h"
#include "tests/core/expect.h"

namespace tandem::arena_layout_test {

using testing::ElementsAre;

NamedTensor trainable(
    const std::string& name, const std::vector<int64_t>& dims,
    at::ScalarType dtype = at::kFloat) {
  return {name, at::zeros(dims, dtype).set_requires_grad(true)};
}

NamedTensor frozen(
    const std::string& name, const std::vector<int64_t>& dims,
    at::ScalarType dtype = at::kFloat) {
  return {name, at::zeros(dims, dtype)};
}

std::vector<int64_t> offsets(const ArenaLayout& layout) {
  std::vector<int64_t> all;
  for (const auto& slot : layout.slots()) {
    all.push_back(slot.offset);
  }
  return all;
}

std::vector<int64_t> segment_sizes(const ArenaLayout& layout) {
  std::vector<int64_t> all;
  for (const auto& segment : layout.segments()) {
    all.push_back(segment.numel);
  }
  return all;
}

TEST(ArenaLayout, SlotsAreInGivenOrderAndAlignedTo64Bytes) {
  const std::vector<NamedTensor> floats = {
      trainable("a", {3}), trainable("b", {4, 4}), trainable("c", {17}),
      trainable("d", {})};
  EXPECT_THAT(offsets(ArenaLayout(floats, {}, 1)), ElementsAre(0, 16, 32, 64));
  const std::vector<NamedTensor> doubles = {
      trainable("a", {3}, at::kDouble), trainable("b", {9}, at::kDouble),
      trainable("c", {1}, at::kDouble)};
  EXPECT_THAT(offsets(ArenaLayout(doubles, {}, 1)), ElementsAre(0, 8, 24));
  const std::vector<NamedTensor> bytes = {
      frozen("a", {65}, at::kBool), frozen("b", {1}, at::kBool)};
  EXPECT_THAT(offsets(ArenaLayout(bytes, {}, 1)), ElementsAre(0, 128));
}

TEST(ArenaLayout, SegmentsDivideEvenlyInto64ByteBlocks) {
  const std::vector<NamedTensor> tensors = {
      trainable("a", {17}), trainable("b", {5}), frozen("c", {9}, at::kDouble)};
  EXPECT_THAT(segment_sizes(ArenaLayout(tensors, {}, 1)), ElementsAre(48, 16));
  EXPECT_THAT(segment_sizes(ArenaLayout(tensors, {}, 2)), ElementsAre(64, 16));
  EXPECT_THAT(segment_sizes(ArenaLayout(tensors, {}, 3)), ElementsAre(48, 24));
  EXPECT_THAT(segment_sizes(ArenaLayout(tensors, {}, 5)), ElementsAre(80, 40));
}

TEST(ArenaLayout, EachDtypeAndTrainabilityHasOneSegment) {
  const ArenaLayout layout(
      {trainable("a", {3}), trainable("b", {3}, at::kDouble), frozen("c", {40}),
       trainable("d", {3}), frozen("e", {3}, at::kLong)},
      {}, 1);
  std::vector<int64_t> segment_of;
  for (const auto& slot : layout.slots()) {
    segment_of.push_back(slot.segment);
  }
  EXPECT_THAT(segment_of, ElementsAre(0, 1, 2, 0, 3));
  EXPECT_THAT(offsets(layout), ElementsAre(0, 0, 0, 16, 0));
  EXPECT_THAT(segment_sizes(layout), ElementsAre(32, 8, 48, 8));

  ASSERT_EQ(layout.ranges().size(), 4u);
  const auto trained = layout.trainable_ranges();
  ASSERT_EQ(trained.size(), 2u);
  EXPECT_EQ(trained[0].segment, 0);
  EXPECT_EQ(trained[0].begin, 0);
  EXPECT_EQ(trained[0].end, 32);  // with the padding
  EXPECT_EQ(trained[1].segment, 1);
  EXPECT_EQ(trained[1].size(), 8);
}

TEST(ArenaLayout, SlotsKeepNamesShapesStridesAndGroups) {
  const auto transposed = at::zeros({2, 5}).t();
  const ArenaLayout layout(
      {{"first", at::zeros({2, 3, 4, 5})}, {"second", transposed}}, {4, 7}, 1);
  const auto& [first, second] = std::tie(layout.slots()[0], layout.slots()[1]);
  EXPECT_EQ(first.name, "first");
  EXPECT_THAT(first.dims, ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(first.strides, ElementsAre(60, 20, 5, 1));
  EXPECT_EQ(first.numel, 120);
  EXPECT_EQ(first.group, 4);
  EXPECT_THAT(second.dims, ElementsAre(5, 2));
  EXPECT_THAT(second.strides, ElementsAre(1, 5));
  EXPECT_EQ(second.group, 7);
  EXPECT_EQ(second.range().begin, 128);
  EXPECT_EQ(second.range().end, 138);
}

TEST(ArenaLayout, RejectsGapsOverlapsAndDuplicateNames) {
  const auto lay_out = [](const NamedTensor& tensor) {
    return [tensor] { ArenaLayout({frozen("good", {3}), tensor}, {}, 1); };
  };
  const auto gaps = at::zeros({4, 6}).narrow(1, 0, 5);
  expect_error<ConfigError>(lay_out({"holey", gaps}), {"'holey'", "contiguous"});
  const auto overlaps = at::zeros({1, 6}).expand({4, 6});
  expect_error<ConfigError>(lay_out({"stacked", overlaps}), {"'stacked'"});
  expect_error<ConfigError>(lay_out(frozen("good", {2})), {"'good'", "twice"});
  expect_error<ConfigError>(
      lay_out(frozen("gew\xe4hlt", {2})), {"'gew\\xe4hlt'", "expected UTF-8"});
}

TEST(ArenaLayout, DescriptionsAreEqualOnlyForEqualLayouts) {
  const auto described = [](const std::vector<NamedTensor>& tensors,
                            int64_t divisor = 1) {
    return ArenaLayout(tensors, {}, divisor).describe();
  };
  const auto a = trainable("a", {4, 8});
  const auto b = trainable("b", {8, 4});
  const std::string reference = described({a, b});
  EXPECT_EQ(reference, described({trainable("a", {4, 8}), trainable("b", {8, 4})}));
  const std::vector<std::string> others = {
      described({b, a}),
      described({a}),
      described({a, trainable("c", {8, 4})}),
      described({a, trainable("b", {4, 8})}),
      described({a, trainable("b", {32})}),
      described({a, trainable("b", {8, 4}, at::kDouble)}),
      described({a, frozen("b", {8, 4})}),
      described({a, {"b", at::zeros({4, 8}).t().set_requires_grad(true)}}),
      described({a, b}, 3)};
  for (const auto& other : others) {
    EXPECT_NE(reference, other);
  }
}

}  // namespace tandem::arena_layout_test
