#pragma once

#include <cstdint>

namespace tandem {

/// sums[row][column] = sum of a[row][step] * b[step][column] over all steps, where b
/// and the sums are so wide that a row is longer than a page.
struct WideProduct {
  const float* a = nullptr;
  // The distances between neighbours, in elements: so a may be transposed.
  int64_t a_row = 0;
  int64_t a_step = 0;
  const float* b = nullptr;
  float* sums = nullptr;
  int64_t rows = 0;
  // The width of b and of the sums, a multiple of 8.
  int64_t columns = 0;
  int64_t steps = 0;
  // Adds to the sums that are there.
  bool accumulate = false;
};

/// The columns that are computed together.
constexpr int64_t kPanel = 32;

/// Floats that a call needs as scratch, aligned to 64 bytes.
constexpr int64_t wide_product_scratch(int64_t steps) {
  return kPanel * steps;
}

// For one instruction set, to be called only where kernel_isa() is that one, or a
// better one: computes the columns [first, last); `first` is a multiple of kPanel, and
// so is `last`, or the end.
namespace avx2 {
void multiply_wide(
    const WideProduct& product, int64_t first, int64_t last, float* scratch);
}
namespace neon {
void multiply_wide(
    const WideProduct& product, int64_t first, int64_t last, float* scratch);
}

}  // namespace tandem
