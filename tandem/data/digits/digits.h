#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Side of a drawn image, in pixels.
constexpr int64_t kDigitSide = 28;

/// Images and labels as in MNIST: row-major, one byte per pixel, ink 255 on paper 0.
struct DigitImages {
  std::vector<uint8_t> pixels;  // count * kDigitSide * kDigitSide
  std::vector<uint8_t> labels;  // count, each 0..9
};

/// Draws images that look like handwritten digits; nothing is read or downloaded.
///
/// Image i depends only on (seed, i): the first 100 of 1000 are the first 100 of 60000,
/// on any number of threads. Images 10k to 10k+9 contain each digit once, in random
/// order. Two seeds give two independent sets, so a test set is drawn with a separate
/// seed.
///
/// Runs on all cores; about 15 us per image on one core. Empty if count <= 0.
DigitImages draw_digits(int64_t count, uint64_t seed);

}  // namespace tandem
