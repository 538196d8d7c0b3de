#pragma once

#include <cstdint>

namespace tandem {

/// Returns 64 random bits that depend only on `value`: one step of SplitMix64 (Steele,
/// Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
constexpr uint64_t mix_bits(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace tandem
