#include "tandem/data/normalise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace tandem::normalise_test {

// As in torchvision, with rounding to float32 at each step.
float expected(int64_t pixel, double mean, double std) {
  const volatile float share = static_cast<float>(pixel) / 255.0f;
  const volatile float centred = share - static_cast<float>(mean);
  return centred / static_cast<float>(std);
}

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b));
}

// The functions of this CPU, and only the table.
std::vector<Normaliser::RowFunction> all_functions() {
  auto functions = Normaliser::row_functions();
  functions.push_back(nullptr);
  return functions;
}

TEST(Normaliser, EveryInstructionSetGivesTheBitsOfTorchvisionForRowsOfAnyLength) {
  std::vector<uint8_t> pixels(400);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(i * 167 + 11);
  }
  for (const auto function : all_functions()) {
    const Normaliser normalise(0.1307, 0.3081, function);
    EXPECT_EQ(normalise.computes(), function != nullptr);
    for (int64_t count = 0; count < 300; ++count) {
      // Nothing is aligned, and bytes after the row are not touched.
      const int64_t first = count % 7;
      std::vector<float> values(400, -7);
      normalise.row(pixels.data() + first, count, values.data() + first);
      int64_t wrong = 0;
      for (int64_t i = 0; i < 400; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool in_row = i >= first && i < first + count;
        const float wanted = in_row ? expected(pixels[at], 0.1307, 0.3081) : -7;
        wrong += same_bits(values[at], wanted) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << count;
    }
  }
}

TEST(Normaliser, TheTableServesStatisticsThatTheFunctionsCannot) {
  struct Case {
    double mean;
    double std;
  };
  // The inverse of the last case is infinite in float32.
  const std::vector<Case> cases = {{0, 1},    {0.5, 0.5},   {0.4914, 0.2023},
                                   {-3, 1e6}, {0.3, 1e-30}, {0.1307, 1e-39}};
  std::vector<uint8_t> pixels(256);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(i);
  }
  for (const auto& [mean, std] : cases) {
    for (const auto function : all_functions()) {
      const Normaliser normalise(mean, std, function);
      std::vector<float> values(256);
      normalise.row(pixels.data(), 256, values.data());
      for (int64_t i = 0; i < 256; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_TRUE(same_bits(values[at], expected(i, mean, std)))
            << i << " with " << mean << ", " << std;
        ASSERT_TRUE(same_bits(normalise(static_cast<uint8_t>(i)), values[at]));
      }
    }
  }
  for (const auto function : Normaliser::row_functions()) {
    EXPECT_FALSE(Normaliser(0.1307, 1e-39, function).computes());
  }
}

}  // namespace tandem::normalise_test
