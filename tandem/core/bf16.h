#pragma once

#include <cstdint>
#include <cstring>

#include "tandem/core/simd.h"

namespace tandem {

/// A bfloat16 value: the upper half of a float32. It is an integer type, so that
/// compilers can vectorise loops on any CPU.
enum class Bf16 : uint16_t {};

/// Converts a float or a Bf16 to float32. Both overloads exist so that templates can
/// work with both types.
TANDEM_ALWAYS_INLINE float widen(float value) {
  return value;
}

TANDEM_ALWAYS_INLINE float widen(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

/// Converts from float32 to T, which is float or Bf16.
template <typename T>
T narrow(float value);

template <>
TANDEM_ALWAYS_INLINE float narrow<float>(float value) {
  return value;
}

/// Rounds to the nearest bfloat16, ties to even. NaN stays NaN.
template <>
TANDEM_ALWAYS_INLINE Bf16 narrow<Bf16>(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<Bf16>(is_nan ? 0x7FC0 : rounded);
}

}  // namespace tandem
