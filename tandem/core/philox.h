#pragma once

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

}  // namespace tandem
