#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/core/simd.h"

namespace tandem {

/// The sum of two numbers, of which the second is below the first's last bit.
struct DoubledDouble {
  double high;
  double low;
};

TANDEM_ALWAYS_INLINE DoubledDouble product(DoubledDouble a, DoubledDouble b) {
  const double high = a.high * b.high;
  const double low =
      std::fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high);
  const double sum = high + low;
  return {sum, low - (sum - high)};
}

/// base^exponent for 0 <= base < 1 and exponent >= 0, nearly always rounded correctly,
/// with the same bits on every CPU and C library. 1 - power() has the bits
/// of 1 - glibc's pow for Adam's usual bases (0.9 to 0.999, a million steps).
TANDEM_ALWAYS_INLINE double power(double base, int64_t exponent) {
  DoubledDouble result{1, 0};
  DoubledDouble factor{base, 0};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) {
      result = product(result, factor);
    }
    factor = product(factor, factor);
  }
  return result.high;
}

}  // namespace tandem
