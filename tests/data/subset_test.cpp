#include "tandem/data/subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/data/loader.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"

namespace tandem::subset_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kSize = 50;

// Samples with their number as class, as third of three inputs, and as name of their
// file.
Dataset numbered(int64_t size = kSize, bool is_mapped = false) {
  auto data = dataset_of(
      size, make_samples<float>({3}, size, [](int64_t i) { return i / 3; }),
      make_samples<int64_t>({}, size, [](int64_t i) { return i; }));
  data.inputs.is_mapped = is_mapped;
  data.num_classes = size;
  data.class_names = {"a", "b"};
  data.hashes = {"x", "y"};
  std::vector<std::string> files;
  for (int64_t i = 0; i < size; ++i) {
    files.push_back(std::to_string(i));
  }
  data.files = std::make_shared<const std::vector<std::string>>(files);
  return data;
}

// Reads all samples with a loader. Expects that each has its input, target and file.
std::vector<int64_t> numbers_in(const Dataset& data) {
  LoaderOptions options;
  options.mean = {0};
  options.std = {1};
  Loader loader(data, in_order(), options);
  std::vector<int64_t> numbers;
  Batch batch;
  for (loader.seek(0); loader.next(batch);) {
    for (int64_t i = 0; i < batch.count(); ++i) {
      const auto place = data.place_of(static_cast<int64_t>(numbers.size()));
      numbers.push_back(batch.targets[i].item<int64_t>());
      const auto expected = static_cast<float>(numbers.back());
      EXPECT_TRUE(batch.inputs[i].eq(expected).all().item<bool>());
      EXPECT_EQ(
          (*data.files)[static_cast<size_t>(place)], std::to_string(numbers.back()));
    }
  }
  return numbers;
}

// Expects that ascending samples of all parts together are 0 to `size` - 1.
void expect_complete(const std::vector<std::vector<int64_t>>& parts, int64_t size) {
  std::set<int64_t> all;
  size_t count = 0;
  for (const auto& part : parts) {
    EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
    all.insert(part.begin(), part.end());
    count += part.size();
  }
  EXPECT_EQ(count, static_cast<size_t>(size));
  EXPECT_EQ(all.size(), static_cast<size_t>(size));
  EXPECT_EQ(*all.begin(), 0);
  EXPECT_EQ(*all.rbegin(), size - 1);
}

std::vector<int64_t> chosen(
    double fraction, uint64_t seed, Dataset whole = numbered()) {
  return numbers_in(hold_out(whole, fraction, seed, "validation"));
}

TEST(HoldOut, PartsAreDisjointAndComplete) {
  auto whole = numbered();
  const auto part = hold_out(whole, 0.2, 1, "validation");
  EXPECT_EQ(part.size, 10);
  EXPECT_EQ(whole.size, 40);
  // Samples in memory are copied.
  EXPECT_EQ(part.inputs.bytes.size(), 120u);
  EXPECT_EQ(whole.targets.bytes.size(), 320u);
  expect_complete({numbers_in(part), numbers_in(whole)}, kSize);
  for (const Dataset* data : {&part, static_cast<const Dataset*>(&whole)}) {
    EXPECT_EQ(data->num_classes, kSize);
    EXPECT_THAT(data->class_names, ElementsAre("a", "b"));
    EXPECT_THAT(data->hashes.inputs, IsEmpty());
  }
}

TEST(HoldOut, TheChoiceDependsOnSeedSizeAndFractionOnly) {
  EXPECT_EQ(chosen(0.2, 1), chosen(0.2, 1));
  EXPECT_NE(chosen(0.2, 1), chosen(0.2, 2));
  auto other = numbered();
  other.name = "other";
  other.num_classes = 7;
  EXPECT_EQ(chosen(0.2, 1, other), chosen(0.2, 1));
  // A random choice is neither the first nor the last samples.
  EXPECT_GT(chosen(0.2, 1).back(), 10);
  EXPECT_LT(chosen(0.2, 1).front(), 40);
}

// Each sample is expected in 200 of 2,000 parts of a tenth, with a standard deviation
// of 13.
TEST(HoldOut, EverySampleIsEquallyLikely) {
  std::vector<int> counts(20);
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    auto whole = numbered(20);
    const auto part = hold_out(whole, 0.1, seed, "validation");
    for (int64_t i = 0; i < part.size; ++i) {
      ++counts[static_cast<size_t>(part.targets.integer(i))];
    }
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, 200, 65);
  }
}

TEST(HoldOut, MappedSamplesStayInTheirFile) {
  auto whole = numbered(kSize, true);
  const uint8_t* file = whole.inputs.bytes.data();
  const auto part = hold_out(whole, 0.2, 1, "validation");
  EXPECT_EQ(part.inputs.bytes.data(), file);
  EXPECT_EQ(whole.inputs.bytes.data(), file);
  EXPECT_EQ(numbers_in(part), chosen(0.2, 1));
  expect_complete({numbers_in(part), numbers_in(whole)}, kSize);
}

TEST(HoldOut, APartOfAPartHasSamplesOfThePart) {
  for (auto whole : {numbered(), numbered(kSize, true)}) {
    const auto test = hold_out(whole, 0.2, 7, "test_fraction");
    // A limit between the two leaves samples out.
    whole = first_samples(whole, 30);
    const auto limited = numbers_in(whole);
    const auto validation = hold_out(whole, 0.1, 3, "validation");
    EXPECT_EQ(validation.size, 3);
    EXPECT_EQ(whole.size, 27);
    auto together = numbers_in(whole);
    const auto held_out = numbers_in(validation);
    together.insert(together.end(), held_out.begin(), held_out.end());
    std::sort(together.begin(), together.end());
    EXPECT_EQ(together, limited);
    for (const int64_t number : numbers_in(test)) {
      EXPECT_EQ(std::count(limited.begin(), limited.end(), number), 0);
    }
  }
}

// 41 bytes: 8 samples of 5 bytes.
TEST(HoldOut, OfASequenceIsItsEnd) {
  std::vector<uint8_t> bytes;
  for (uint8_t i = 0; i < 41; ++i) {
    bytes.push_back(i);
  }
  const Bytes text = bytes;
  auto whole = dataset_of(
      8, {ElementType::uint8, {5}, text},
      {ElementType::uint8, {5}, part_of(text, 1, 40)});
  whole.tokens = whole.is_sequence = true;
  whole.hashes = {"x", "y"};
  const auto end = hold_out(whole, 0.25, 3, "test_fraction");
  EXPECT_EQ(whole.size, 6);
  EXPECT_EQ(end.size, 2);
  EXPECT_TRUE(end.is_sequence);
  EXPECT_EQ(end.inputs.bytes[0], 30);
  EXPECT_EQ(end.targets.bytes[0], 31);
  EXPECT_EQ(end.targets.bytes[9], 40);
  EXPECT_EQ(whole.inputs.bytes[0], 0);
  EXPECT_THAT(end.hashes.inputs, IsEmpty());
  EXPECT_THAT(whole.hashes.inputs, IsEmpty());
  // A start of the first part never reaches an input of the end.
  LoaderOptions random;
  random.random_starts = true;
  Loader loader(whole, {}, random);
  Batch batch;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    loader.seek(epoch);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_LT(batch.inputs.max().item<int64_t>(), 30);
  }
}

TEST(HoldOut, BothPartsNeedSamples) {
  for (const double fraction : {0.009, 0.995}) {
    auto whole = numbered();
    expect_error<ConfigError>(
        [&] { return hold_out(whole, fraction, 1, "test_fraction"); },
        {"[data] test_fraction is 0.",
         "of the 50 samples of 'unnamed', expected some but not all"});
    EXPECT_EQ(whole.size, kSize);
  }
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
  auto data = numbered(10);
  data.targets.bytes = {};
  EXPECT_TRUE(evenly_spaced_samples(data, 4).targets.bytes.empty());
}

// The product of the size and the limit is larger than 2^63.
TEST(EvenlySpacedSamples, OfAHugeFileDoNotOverflow) {
  constexpr int64_t kHuge = (int64_t{1} << 50) + 5;
  constexpr int64_t kLimit = 1 << 15;
  Dataset data;
  data.size = kHuge;
  data.inputs.is_mapped = true;
  const auto limited = evenly_spaced_samples(data, kLimit);
  ASSERT_EQ(limited.size, kLimit);
  EXPECT_EQ(limited.place_of(1), kHuge / kLimit);
  EXPECT_EQ(limited.place_of(kLimit - 1), kHuge - kHuge / kLimit - 1);
}

}  // namespace tandem::subset_test
