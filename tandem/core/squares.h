#pragma once

#include <ATen/core/Tensor.h>

#include "tandem/core/simd.h"

namespace tandem {

/// A sum of float64 values with about twice the precision of float64. Rounded to
/// float64, the sums of two orders of addition differ in fewer than one of 10^9 cases.
struct DoubledSum {
  double high = 0;
  double low = 0;

  // Source: Knuth's two-sum (The Art of Computer Programming, volume 2, 4.2.2).
  TANDEM_ALWAYS_INLINE void add(double term) {
    const double sum = high + term;
    const double added = sum - high;
    low += (high - (sum - added)) + (term - added);
    high = sum;
  }
  TANDEM_ALWAYS_INLINE void add(const DoubledSum& other) {
    add(other.high);
    add(other.low);
  }
  double value() const {
    return high + low;
  }
};

/// Returns the sum of the squares of all elements of a float32 or float64 tensor in
/// main memory without gaps. Its bits do not depend on the instruction set or the
/// number of threads.
DoubledSum squares_in(const at::Tensor& tensor);

}  // namespace tandem
