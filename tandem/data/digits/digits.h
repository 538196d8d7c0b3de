#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Width and height of a drawn image, in pixels.
constexpr int64_t kDigitSide = 28;

/// Images and labels as in MNIST: row-major, one byte per pixel, 255 for full ink and 0
/// for paper.
struct DigitImages {
  std::vector<uint8_t> pixels;  // count * kDigitSide * kDigitSide bytes
  std::vector<uint8_t> labels;  // count bytes, each 0 to 9
};

/// Draws images that look like handwritten digits. Needs no files and no network.
///
/// Image i depends only on (seed, i), not on `count` or the number of threads. The ten
/// images 10 * n to 10 * n + 9 contain each digit once, in random order. Different
/// seeds give independent sets, so draw a test set with another seed.
///
/// Runs on all cores, and needs about 15 us per image on one core. Returns no images if
/// count <= 0.
DigitImages draw_digits(int64_t count, uint64_t seed);

}  // namespace tandem
