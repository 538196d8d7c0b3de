#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Random changes of training images.
struct Augmentation {
  // True: mirrors each image left to right, with a probability of 1/2.
  bool flip = false;
  // Number of black pixels added on each side before an image is cropped to its size at
  // a random place; 0: no crop. Corresponds to torchvision's RandomCrop(size,
  // padding=crop).
  int64_t crop = 0;

  bool any() const {
    return flip || crop > 0;
  }
};

/// Random changes of one image. The pixel (y, x) of the changed image is the input's
/// pixel (y + down, x + right). If `mirror` is true, the result is then mirrored.
struct AugmentationDraw {
  int64_t down = 0;
  int64_t right = 0;
  bool mirror = false;
};

/// Parses a text such as "flip,crop:4". Returns no augmentation for "". Throws
/// ConfigError for any other text.
[[nodiscard]] Augmentation parse_augmentation(const std::string& text);

/// Returns the random changes of the sample at a global position of an epoch
/// (sampler.h). A pure function, so the number of ranks and a restart do not change the
/// images. Draws with SplitMix64 (Steele, Lea and Flood, 2014).
[[nodiscard]] AugmentationDraw draw_augmentation(
    const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position);

/// Returns a random start of a sample in a sequence, from 0 to `num_starts` - 1. A pure
/// function like draw_augmentation().
[[nodiscard]] int64_t draw_start(
    int64_t num_starts, uint64_t seed, int64_t epoch, int64_t position);

}  // namespace tandem
