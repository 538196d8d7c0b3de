#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/core/simd.h"

namespace tandem {

/// The counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers:
/// as easy as 1, 2, 3", SC 2011), one round at a time: loops keep the words of several
/// blocks side by side. A block is kPhiloxRounds rounds, with philox_next_key() after
/// each.
constexpr int kPhiloxRounds = 10;

TANDEM_ALWAYS_INLINE void philox_round(
    uint32_t& x0, uint32_t& x1, uint32_t& x2, uint32_t& x3, uint32_t key0,
    uint32_t key1) {
  const uint64_t product0 = uint64_t{0xD2511F53} * x0;
  const uint64_t product1 = uint64_t{0xCD9E8D57} * x2;
  x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ key0;
  x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ key1;
  x1 = static_cast<uint32_t>(product1);
  x3 = static_cast<uint32_t>(product0);
}

TANDEM_ALWAYS_INLINE void philox_next_key(uint32_t& key0, uint32_t& key1) {
  key0 += 0x9E3779B9;
  key1 += 0xBB67AE85;
}

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
