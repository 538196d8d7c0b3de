#include "tandem/data/normalization.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/subset.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"

namespace tandem::normalization_test {

using testing::ElementsAre;

// Samples without targets.
Dataset of(const Samples& inputs, int64_t size) {
  return dataset_of(size, inputs, {});
}

// Expects the mean and the standard deviation of each slice of the second dimension.
void expect_statistics(const Normalization& found, const at::Tensor& slices) {
  const auto numbers = slices.to(at::kDouble);
  ASSERT_EQ(found.mean.size(), static_cast<size_t>(slices.size(1)));
  ASSERT_EQ(found.std.size(), found.mean.size());
  for (int64_t i = 0; i < slices.size(1); ++i) {
    const auto slice = numbers.select(1, i);
    const auto mean = slice.mean().item<double>();
    const auto std = slice.std(/*unbiased=*/false).item<double>();
    const auto at = static_cast<size_t>(i);
    EXPECT_NEAR(found.mean[at], mean, 1e-12 * std::abs(mean)) << i;
    EXPECT_NEAR(found.std[at], std, 1e-9 * std) << i;
  }
}

TEST(MeasureNormalization, OfEachChannelEqualsAtens) {
  const auto images = make_samples<uint8_t>(
      {3, 4, 5}, 40, [](int64_t i) { return i * i % 251 / (1 + i / 20 % 3); });
  expect_statistics(
      measure_normalization(of(images, 40)),
      tensor_of(images, 40).to(at::kDouble).div(255));
  // A channel of float32 images.
  const auto floats = make_samples<float>(
      {2, 3, 3}, 30, [](int64_t i) { return std::sin(i) * static_cast<double>(i); });
  expect_statistics(measure_normalization(of(floats, 30)), tensor_of(floats, 30));
}

TEST(MeasureTargets, OfEachColumnEqualsAtens) {
  const auto inputs = make_samples<uint8_t>({2}, 50, [](int64_t i) { return i; });
  const auto targets = make_samples<float>({3}, 50, [](int64_t i) {
    return 1e5 * static_cast<double>(i % 3 + 1) + static_cast<double>(i * i % 17);
  });
  expect_statistics(
      measure_targets(dataset_of(50, inputs, targets)), tensor_of(targets, 50));
  expect_error<ConfigError>(
      [&] { (void)measure_targets(dataset_of(50, targets, inputs)); },
      {"--target-mean", "are classes, expected numbers"});
}

TEST(MeasureNormalization, OfEachColumnEqualsAtens) {
  const auto columns = make_samples<float>({4}, 100, [](int64_t i) {
    return std::cos(i) * std::pow(10, i % 4) + static_cast<double>(i % 4);
  });
  expect_statistics(measure_normalization(of(columns, 100)), tensor_of(columns, 100));
  const auto bytes = make_samples<uint8_t>({6}, 20, [](int64_t i) { return i * 7; });
  expect_statistics(
      measure_normalization(of(bytes, 20)), tensor_of(bytes, 20).to(at::kDouble));
}

TEST(MeasureNormalization, OfOtherShapesIsOneNumber) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{}, {3, 4}, {2, 3, 2, 2}}) {
    const auto numbers =
        make_samples<float>(shape, 20, [](int64_t i) { return std::sin(i); });
    expect_statistics(
        measure_normalization(of(numbers, 20)), tensor_of(numbers, 20).view({-1, 1}));
  }
  const auto bytes = make_samples<uint8_t>({6, 2}, 20, [](int64_t i) { return i * 7; });
  expect_statistics(
      measure_normalization(of(bytes, 20)),
      tensor_of(bytes, 20).to(at::kDouble).view({-1, 1}));
}

// Rounding errors of the sum of squares would be larger than the variance.
TEST(MeasureNormalization, AColumnMayHaveALargeMean) {
  const auto columns = make_samples<float>({2}, 1'000, [](int64_t i) {
    return i % 2 == 0 ? 1e9 + 64.0 * static_cast<double>(i % 8)
                      : -3e6 + static_cast<double>(i % 5);
  });
  const auto found = measure_normalization(of(columns, 1'000));
  expect_statistics(found, tensor_of(columns, 1'000));
}

TEST(MeasureNormalization, AConstantColumnHasTheStandardDeviationOne) {
  const float values[] = {0, 0.1F, 1e9F, -7.3F};
  const auto columns =
      make_samples<float>({4}, 999, [&](int64_t i) { return values[i % 4]; });
  const auto found = measure_normalization(of(columns, 999));
  EXPECT_THAT(found.mean, ElementsAre(0, 0.1F, 1e9F, -7.3F));
  EXPECT_THAT(found.std, ElementsAre(1, 1, 1, 1));
  const auto black = make_samples<uint8_t>({1, 2, 2}, 9, [](int64_t) { return 51; });
  EXPECT_THAT(measure_normalization(of(black, 9)).mean, ElementsAre(0.2));
  EXPECT_THAT(measure_normalization(of(black, 9)).std, ElementsAre(1));
}

TEST(MeasureNormalization, OfIndicesOrNoSamplesChangesNothing) {
  const auto seven = [](int64_t) { return 7; };
  auto tokens = of(make_samples<uint8_t>({5}, 4, seven), 4);
  tokens.tokens = true;
  for (const auto& data :
       {tokens, of(make_samples<int64_t>({5}, 4, seven), 4),
        of(make_samples<float>({5}, 0, seven), 0)}) {
    EXPECT_THAT(measure_normalization(data).mean, ElementsAre(0));
    EXPECT_THAT(measure_normalization(data).std, ElementsAre(1));
  }
}

// 25,000 numbers have 100,000 bytes.
TEST(MeasureNormalization, ReadsBlocksAtEqualDistancesOfLargeInputs) {
  constexpr int64_t kSize = 25'000;
  auto data =
      of(make_samples<float>({1}, kSize, [](int64_t i) { return i * i % 977; }), kSize);
  const auto all = tensor_of(data.inputs, kSize);
  for (const bool is_mapped : {false, true}) {
    data.inputs.is_mapped = is_mapped;
    expect_statistics(measure_normalization(data), all);
    expect_statistics(measure_normalization(data, 100'000), all);
    // Blocks of two numbers.
    std::vector<float> expected;
    for (int64_t i = 0; i < 1'024; ++i) {
      for (const int64_t k : {0, 1}) {
        expected.push_back(all[12'500 * i / 1'024 * 2 + k].item<float>());
      }
    }
    expect_statistics(
        measure_normalization(data, 1'024 * 8), at::tensor(expected).view({-1, 1}));
  }
  // Samples that are larger than a block, of which not all are measured.
  auto images =
      of(make_samples<uint8_t>({1, 4, 8}, 100, [](int64_t i) { return i / 32; }), 100);
  const auto pixels = tensor_of(images.inputs, 100).to(at::kDouble).div(255);
  expect_statistics(measure_normalization(images, 320), pixels.slice(0, 0, 100, 10));
}

TEST(MeasureNormalization, OfPartsInMemoryAndInAFileIsEqual) {
  auto file =
      of(make_samples<float>({3}, 1'000, [](int64_t i) { return std::sin(i); }), 1'000);
  file.inputs.is_mapped = true;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 1'000; i += 7) {
    places.push_back(i);
  }
  const auto mapped = samples_at(file, places);
  file.inputs.is_mapped = false;
  const auto copied = samples_at(file, places);
  ASSERT_TRUE(mapped.places);
  ASSERT_FALSE(copied.places);
  for (const int64_t most_bytes : {int64_t{1'000}, kMeasuredBytes}) {
    const auto one = measure_normalization(mapped, most_bytes);
    const auto other = measure_normalization(copied, most_bytes);
    EXPECT_EQ(one.mean, other.mean);
    EXPECT_EQ(one.std, other.std);
  }
}

TEST(MeasureNormalization, ANumberThatIsNotFiniteIsAnError) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const int64_t at : {0, 15}) {
      std::vector<float> numbers(30, 1.5F);
      numbers[static_cast<size_t>(at)] = bad;
      const auto data = of(samples_of<float>({3}, numbers), 10);
      expect_error<DataError>(
          [&] { return measure_normalization(data); },
          {"sample " + std::to_string(at / 3) + " of 'unnamed' has an input"});
    }
  }
}

TEST(MeasureNormalization, UsesOnlyTheSamplesOfThePart) {
  const auto numbers = samples_of<float>({1}, {100, 1, 200, 3, 300});
  auto data = of(numbers, 2);
  data.places =
      std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{1, 3});
  EXPECT_THAT(measure_normalization(data).mean, ElementsAre(2));
  EXPECT_THAT(measure_normalization(data).std, ElementsAre(1));
  data.places = nullptr;
  EXPECT_THAT(measure_normalization(data).mean, ElementsAre(50.5));
}

ChannelValues words(const std::string& text) {
  return ChannelValues::parse(text).value();
}

DataOptions settled(
    const std::string& mean, const std::string& std, const Dataset& train) {
  DataOptions options;
  options.mean = words(mean);
  options.std = words(std);
  settle_normalization(options, train);
  return options;
}

TEST(SettleNormalization, TheDefaultOfImagesIsMnists) {
  const auto images = of(samples_of<uint8_t>({1, 1, 2}, {0, 255}), 1);
  const auto both = settled("default", "default", images);
  EXPECT_THAT(both.mean.values(), ElementsAre(0.1307));
  EXPECT_THAT(both.std.values(), ElementsAre(0.3081));
  const auto mean = settled("0.25", "default", images);
  EXPECT_THAT(mean.mean.values(), ElementsAre(0.25));
  EXPECT_THAT(mean.std.values(), ElementsAre(0.3081));
}

TEST(SettleNormalization, AutoIsMeasured) {
  const auto images = of(samples_of<uint8_t>({1, 1, 2}, {0, 255}), 1);
  const auto both = settled("auto", "auto", images);
  EXPECT_THAT(both.mean.values(), ElementsAre(0.5));
  EXPECT_THAT(both.std.values(), ElementsAre(0.5));
  const auto std = settled("0.25", "auto", images);
  EXPECT_THAT(std.mean.values(), ElementsAre(0.25));
  EXPECT_THAT(std.std.values(), ElementsAre(0.5));
  // Samples that are not images.
  const auto columns = of(samples_of<float>({2}, {0, 10, 4, 30}), 2);
  EXPECT_THAT(settled("default", "1,1", columns).mean.values(), ElementsAre(2, 20));
}

TEST(SettleNormalization, UsesWhatLoadingMeasured) {
  auto images = of(samples_of<uint8_t>({1, 1, 2}, {0, 255}), 1);
  images.mean = {0.75};
  images.std = {0.125};
  for (const char* word : {"default", "auto"}) {
    EXPECT_THAT(settled(word, word, images).mean.values(), ElementsAre(0.75));
    EXPECT_THAT(settled(word, word, images).std.values(), ElementsAre(0.125));
  }
  EXPECT_THAT(settled("1", "2", images).mean.values(), ElementsAre(1));
  EXPECT_THAT(settled("1", "2", images).std.values(), ElementsAre(2));
}

}  // namespace tandem::normalization_test
