#pragma once

// The words of tandem/kernels/cuda/mma.h. Where lanes have which values is written here
// a second time, by the PTX ISA's tables and not by that header's functions: kernels
// that hold their fragments in another way get wrong products.

#include <array>
#include <cstdint>
#include <cstring>

#include "tests/cuda/emulator/block_emulator.h"

namespace tandem::emulator {

struct Fragments {
  std::array<uint32_t, 4> a;
  std::array<uint32_t, 2> b;
};

/// What all lanes of a warp gave, valid until `leave`.
class WarpFragments {
 public:
  WarpFragments(const Fragments& own, const Site& site) : site_(site) {
    const uint64_t* given = exchange(
        0xffffffff, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&own)), site);
    for (size_t i = 0; i < of_lane_.size(); ++i) {
      of_lane_[i] =
          reinterpret_cast<const Fragments*>(static_cast<uintptr_t>(given[i]));
    }
  }

  uint32_t a(unsigned row, unsigned word) const {
    return of_lane_[row % 8 * 4 + word % 4]->a[row / 8 + word / 4 * 2];
  }
  uint32_t b(unsigned word, unsigned column) const {
    return of_lane_[column * 4 + word % 4]->b[word / 4];
  }

  /// Waits until no lane reads what another has on its stack.
  void leave() const {
    exchange(0xffffffff, 0, site_);
  }

 private:
  Site site_;
  std::array<const Fragments*, 32> of_lane_{};
};

/// `dot`: the sum of products of the values in two words. Sums are float64, rounded at
/// the end: a GPU adds in an order, and cuts off digits, that NVIDIA does not say.
template <typename Dot>
void warp_multiply(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Site& site,
    Dot&& dot) {
  const Fragments own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const WarpFragments all(own, site);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane() / 4 + i / 2 * 8;
    const unsigned column = lane() % 4 * 2 + i % 2;
    double sum = c[i];
    for (unsigned word = 0; word < 8; ++word) {
      sum += dot(all.a(row, word), all.b(word, column));
    }
    c[i] = static_cast<float>(sum);
  }
  all.leave();
}

inline uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline double value_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  return value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace tandem::emulator

namespace tandem::cuda {

inline uint32_t to_tf32(float value) {
  const uint32_t bits = emulator::bits_of(value);
  return value != value ? 0x7fffffff : (bits + 0x1000) & ~uint32_t{0x1fff};
}

inline uint32_t to_bf16_pair(float low, float high) {
  return emulator::to_bf16(low) | emulator::to_bf16(high) << 16;
}

inline void mma_tf32(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
    TANDEM_SITE_ARGUMENTS) {
  // The lower 13 bits are not looked at.
  const auto value = [](uint32_t word) {
    return emulator::value_of(word & ~uint32_t{0x1fff});
  };
  emulator::warp_multiply(
      c, a, b, {"mma_tf32", file, line},
      [&](uint32_t x, uint32_t y) { return value(x) * value(y); });
}

inline void mma_bf16(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
    TANDEM_SITE_ARGUMENTS) {
  const auto low = [](uint32_t word) { return emulator::value_of(word << 16); };
  const auto high = [](uint32_t word) { return emulator::value_of(word & 0xffff0000); };
  emulator::warp_multiply(
      c, a, b, {"mma_bf16", file, line},
      [&](uint32_t x, uint32_t y) { return low(x) * low(y) + high(x) * high(y); });
}

}  // namespace tandem::cuda
