#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/core/simd.h"

namespace tandem {

/// Number of rounds of the counter-based generator Philox4x32-10 (Salmon et al.,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A block is computed by
/// kPhiloxRounds calls of philox_round() and philox_next_key(). Callers compute several
/// blocks at a time.
constexpr int kPhiloxRounds = 10;

/// Computes one round of Philox on the block x0 to x3.
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

/// Computes the key of the next round.
TANDEM_ALWAYS_INLINE void philox_next_key(uint32_t& key0, uint32_t& key1) {
  key0 += 0x9E3779B9;
  key1 += 0xBB67AE85;
}

/// Number of Philox blocks in a group. A group has 128 random numbers of 16 bits, one
/// for each of 128 neighboring elements of a sample (core/dropout.h).
///
/// Element e of a group uses the 16-bit half e / 64 of word (e / 16) % 4 in block e %
/// 16. In this order, a vectorized loop over blocks writes neighboring elements.
constexpr uint32_t kDropoutLanes = 16;
constexpr int64_t kDropoutGroup = 8 * kDropoutLanes;

/// Philox's key, and its counter for one sample and layer, without the counter's first
/// word. The first word is the number of the block.
struct DropoutCounter {
  uint32_t position;
  uint32_t epoch;
  uint32_t layer;
  uint32_t key0;
  uint32_t key1;
};

/// Returns the counter for a sample at `position` of `epoch`.
TANDEM_ALWAYS_INLINE DropoutCounter
dropout_counter(uint64_t seed, int64_t epoch, int64_t position, int64_t layer) {
  return {
      static_cast<uint32_t>(position), static_cast<uint32_t>(epoch),
      static_cast<uint32_t>(layer), static_cast<uint32_t>(seed),
      static_cast<uint32_t>(seed >> 32)};
}

/// Returns the threshold for dropout probability `p`: an element is kept if its random
/// number is at least the threshold.
TANDEM_ALWAYS_INLINE uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(std::lround(p * 65536));
}

}  // namespace tandem
