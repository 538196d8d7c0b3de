#include "tandem/data/augmentation.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/random.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr int64_t kMostCrop = 1'024;

uint64_t random_bits(uint64_t seed, int64_t epoch, int64_t position) {
  const uint64_t of_epoch = mix_bits(mix_bits(seed) ^ static_cast<uint64_t>(epoch));
  return mix_bits(of_epoch ^ static_cast<uint64_t>(position));
}

// Returns a number from -most to `most`, from 31 random bits.
int64_t offset_of(uint64_t bits, int64_t most) {
  const auto count = static_cast<uint64_t>(2 * most + 1);
  return static_cast<int64_t>(((bits & 0x7fffffff) * count) >> 31) - most;
}

}  // namespace

Augmentation parse_augmentation(const std::string& text) {
  constexpr const char* kCrop = "crop:";
  Augmentation augmentation;
  for (const auto& word : split(text, ',')) {
    const bool is_crop = word.rfind(kCrop, 0) == 0;
    const auto pixels =
        is_crop ? parse_number<int64_t>(word.substr(std::string(kCrop).size()))
                : std::nullopt;
    if (word == "flip") {
      augmentation.flip = true;
    } else if (pixels && *pixels >= 1 && *pixels <= kMostCrop) {
      augmentation.crop = *pixels;
    } else {
      throw ConfigError(fmt::format(
          "[data] augment is '{}', expected flip, crop:PIXELS (1 to {}), or "
          "flip,crop:PIXELS; change --augment",
          text, kMostCrop));
    }
  }
  return augmentation;
}

AugmentationDraw draw_augmentation(
    const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t position) {
  const uint64_t bits = random_bits(seed, epoch, position);
  AugmentationDraw draw;
  draw.down = offset_of(bits, augmentation.crop);
  draw.right = offset_of(bits >> 31, augmentation.crop);
  draw.mirror = augmentation.flip && (bits >> 63) != 0;
  return draw;
}

int64_t draw_start(int64_t num_starts, uint64_t seed, int64_t epoch, int64_t position) {
  const uint64_t bits = random_bits(seed, epoch, position);
  return static_cast<int64_t>(bits % static_cast<uint64_t>(num_starts));
}

}  // namespace tandem
