#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/core/philox.h"

namespace tandem {

/// Where the number of 16 bits lies that decides about an element of a sample
/// (model/dropout.h): a block of Philox has eight, and sixteen blocks side by side are
/// a group. Element e of a group of 128 is half e / 64 of word (e / 16) % 4 of block e
/// % 16, so that loops store neighbours together.
constexpr uint32_t kDropoutLanes = 16;
constexpr int64_t kDropoutGroup = 8 * kDropoutLanes;

/// What Philox starts from, but for the block's number.
struct DropoutCounter {
  uint32_t position;
  uint32_t epoch;
  uint32_t layer;
  uint32_t key0;
  uint32_t key1;
};

TANDEM_ALWAYS_INLINE DropoutCounter
dropout_counter(uint64_t seed, int64_t epoch, int64_t position, int64_t layer) {
  return {
      static_cast<uint32_t>(position), static_cast<uint32_t>(epoch),
      static_cast<uint32_t>(layer), static_cast<uint32_t>(seed),
      static_cast<uint32_t>(seed >> 32)};
}

/// An element is kept where its number is not below this.
TANDEM_ALWAYS_INLINE uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(std::lround(p * 65536));
}

}  // namespace tandem
