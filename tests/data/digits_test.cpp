#include "tandem/data/digits/digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <vector>

namespace tandem::digits_test {

constexpr size_t kPixels = kDigitSide * kDigitSide;

using Image = std::vector<uint8_t>;
using ClassMeans = std::array<std::array<double, kPixels>, 10>;

Image image_at(const DigitImages& images, size_t i) {
  const auto begin = images.pixels.begin() + static_cast<std::ptrdiff_t>(i * kPixels);
  return Image(begin, begin + static_cast<std::ptrdiff_t>(kPixels));
}

double mean_ink(const Image& image) {
  double sum = 0;
  for (uint8_t pixel : image) {
    sum += pixel;
  }
  return sum / 255 / static_cast<double>(image.size());
}

ClassMeans class_means(const DigitImages& images) {
  ClassMeans means{};
  const double per_class = static_cast<double>(images.labels.size()) / 10;
  for (size_t i = 0; i < images.labels.size(); ++i) {
    auto& mean = means[images.labels[i]];
    for (size_t p = 0; p < kPixels; ++p) {
      mean[p] += images.pixels[i * kPixels + p] / per_class;
    }
  }
  return means;
}

size_t nearest(const ClassMeans& means, const Image& image) {
  std::array<double, 10> distances{};
  for (size_t digit = 0; digit < distances.size(); ++digit) {
    for (size_t p = 0; p < kPixels; ++p) {
      const double off = means[digit][p] - image[p];
      distances[digit] += off * off;
    }
  }
  const auto best = std::min_element(distances.begin(), distances.end());
  return static_cast<size_t>(best - distances.begin());
}

TEST(Digits, AnImageDependsOnlyOnSeedAndIndex) {
  const DigitImages few = draw_digits(105, 7);
  const DigitImages many = draw_digits(3000, 7);  // several threads
  ASSERT_EQ(few.pixels.size(), 105 * kPixels);
  ASSERT_EQ(few.labels.size(), 105u);
  EXPECT_TRUE(std::equal(few.labels.begin(), few.labels.end(), many.labels.begin()));
  EXPECT_TRUE(std::equal(few.pixels.begin(), few.pixels.end(), many.pixels.begin()));
}

TEST(Digits, AreTheSameBytesOnEveryMachine) {
  const DigitImages images = draw_digits(500, 1);
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const auto* bytes : {&images.pixels, &images.labels}) {
    for (uint8_t byte : *bytes) {
      hash = (hash ^ byte) * 0x100000001b3u;
    }
  }
  // The hash changes with any change to the drawing; calibrate again before updating
  // it.
  EXPECT_EQ(hash, 9327040245750536058u);
}

TEST(Digits, NoImageOccursTwiceForAnySeed) {
  std::set<Image> seen;
  for (uint64_t seed : {0u, 1u, 2u}) {
    const DigitImages images = draw_digits(400, seed);
    for (size_t i = 0; i < 400; ++i) {
      EXPECT_TRUE(seen.insert(image_at(images, i)).second) << seed << ", " << i;
    }
  }
}

TEST(Digits, EveryTenContainEachDigitOnceInRandomOrder) {
  const std::vector<uint8_t> labels = draw_digits(2000, 3).labels;
  std::set<std::vector<uint8_t>> orders;
  for (auto ten = labels.begin(); ten != labels.end(); ten += 10) {
    std::vector<uint8_t> order(ten, ten + 10);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_GT(orders.size(), 195u);
  EXPECT_NE(labels, draw_digits(2000, 4).labels);
}

TEST(Digits, EveryImageIsMostlyPaperWithSomeInk) {
  const DigitImages images = draw_digits(2000, 5);
  double sum = 0;
  for (size_t i = 0; i < images.labels.size(); ++i) {
    const Image image = image_at(images, i);
    const double ink = mean_ink(image);
    sum += ink;
    EXPECT_GT(ink, 0.02) << i;
    EXPECT_LT(ink, 0.4) << i;
    EXPECT_GT(*std::max_element(image.begin(), image.end()), 150) << i;
  }
  EXPECT_NEAR(sum / 2000, 0.1307, 0.01);  // MNIST's mean
}

TEST(Digits, ClassMeansClassifyThemImperfectly) {
  const ClassMeans means = class_means(draw_digits(4000, 10));
  const DigitImages test = draw_digits(1500, 11);
  int right = 0;
  for (size_t i = 0; i < test.labels.size(); ++i) {
    right += nearest(means, image_at(test, i)) == test.labels[i] ? 1 : 0;
  }
  EXPECT_GT(right / 1500.0, 0.6);
  EXPECT_LT(right / 1500.0, 0.8);
}

TEST(Digits, NoneAreDrawnForACountOfZeroOrLess) {
  EXPECT_TRUE(draw_digits(0, 1).labels.empty());
  EXPECT_TRUE(draw_digits(-1, 1).pixels.empty());
}

}  // namespace tandem::digits_test
