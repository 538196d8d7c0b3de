#include "tandem/data/subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/data/some_samples.h"

namespace tandem::subset_test {

using testing::ElementsAre;

// Samples whose input and target are their number.
Dataset numbered(int64_t size, bool is_mapped) {
  const auto number = [](int64_t i) { return i; };
  auto data = dataset_of(
      size, make_samples<int64_t>({1}, size, number),
      make_samples<int64_t>({}, size, number));
  data.inputs.is_mapped = is_mapped;
  data.hashes = {"x", "y"};
  std::vector<std::string> files;
  for (int64_t i = 0; i < size; ++i) {
    files.push_back(std::to_string(i));
  }
  data.files = std::make_shared<const std::vector<std::string>>(files);
  return data;
}

// Returns the numbers of the samples. Expects that inputs, targets and files agree.
std::vector<int64_t> numbers_in(const Dataset& data) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < data.size; ++i) {
    const int64_t place = data.place_of(i);
    numbers.push_back(data.targets.integer(place));
    EXPECT_EQ(data.inputs.integer(place), numbers.back());
    EXPECT_EQ(
        (*data.files)[static_cast<size_t>(place)], std::to_string(numbers.back()));
  }
  return numbers;
}

TEST(EvenlySpacedSamples, BeginWithTheFirstSample) {
  for (const bool is_mapped : {false, true}) {
    const auto data = numbered(10, is_mapped);
    const auto limited = evenly_spaced_samples(data, 4);
    EXPECT_THAT(numbers_in(limited), ElementsAre(0, 2, 5, 7));
    EXPECT_TRUE(limited.hashes.inputs.empty());
    EXPECT_THAT(numbers_in(evenly_spaced_samples(data, 1)), ElementsAre(0));
    EXPECT_THAT(
        numbers_in(evenly_spaced_samples(data, 9)),
        ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
    // A subset of a subset.
    EXPECT_THAT(numbers_in(evenly_spaced_samples(limited, 2)), ElementsAre(0, 5));
  }
}

TEST(EvenlySpacedSamples, AreAllSamplesIfThereIsNoLowerLimit) {
  const auto data = numbered(10, true);
  for (const int64_t limit : {0, 10, 1'000}) {
    const auto all = evenly_spaced_samples(data, limit);
    EXPECT_EQ(all.size, 10);
    EXPECT_EQ(all.hashes.inputs, "x");
    EXPECT_FALSE(all.places);
  }
}

TEST(EvenlySpacedSamples, MayLackTargets) {
  auto data = numbered(10, false);
  data.targets.bytes = {};
  EXPECT_TRUE(evenly_spaced_samples(data, 4).targets.bytes.empty());
}

// The product of the size and the limit is larger than 2^63.
TEST(EvenlySpacedSamples, OfAHugeFileDoNotOverflow) {
  constexpr int64_t kSize = (int64_t{1} << 50) + 5;
  constexpr int64_t kLimit = 1 << 15;
  Dataset data;
  data.size = kSize;
  data.inputs.is_mapped = true;
  const auto limited = evenly_spaced_samples(data, kLimit);
  ASSERT_EQ(limited.size, kLimit);
  EXPECT_EQ(limited.place_of(1), kSize / kLimit);
  EXPECT_EQ(limited.place_of(kLimit - 1), kSize - kSize / kLimit - 1);
}

}  // namespace tandem::subset_test
