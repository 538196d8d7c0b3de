#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/core/simd.h"

namespace tandem {

// A number in double-double arithmetic: the sum of `high` and `low`, where `low` is
// smaller than the last bit of `high`.
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

/// Returns base^exponent for 0 <= base < 1 and exponent >= 0, nearly always correctly
/// rounded, with the same bits on every CPU and C library if the caller is compiled
/// with -ffp-contract=off. For Adam's usual bases (0.9 to 0.999, a million steps), 1 -
/// power() equals 1 - pow() of glibc bit by bit.
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
