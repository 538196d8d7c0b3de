#pragma once

#include <cstdint>

namespace tandem {

/// Matrix product: sums[row][column] = sum over steps of a[row][step] *
/// b[step][column]. multiply_wide() is fast even if the rows of `b` and `sums` are
/// longer than a memory page.
struct WideProduct {
  const float* a = nullptr;
  // Distances in `a` between neighboring rows and between neighboring steps, in
  // elements. With these distances, `a` may be transposed.
  int64_t a_row = 0;
  int64_t a_step = 0;
  const float* b = nullptr;
  float* sums = nullptr;
  int64_t rows = 0;
  // Number of columns of `b` and `sums`, a multiple of 8.
  int64_t columns = 0;
  int64_t steps = 0;
  // True if the products are added to `sums`, false if they overwrite `sums`.
  bool accumulate = false;
};

/// Number of columns that multiply_wide() computes at the same time.
constexpr int64_t kPanel = 32;

/// Returns the size of the scratch memory of multiply_wide(), in floats. Align the
/// memory to 64 bytes.
constexpr int64_t wide_product_scratch(int64_t steps) {
  return kPanel * steps;
}

// Versions of a function for AVX2 and NEON. Call a version only if kernel_isa() is its
// instruction set or a better one.
namespace avx2 {
/// Computes the columns [first, last) of a product. `first` is a multiple of kPanel.
/// `last` is also a multiple of kPanel, or the number of columns.
void multiply_wide(
    const WideProduct& product, int64_t first, int64_t last, float* scratch);
}  // namespace avx2
namespace neon {
void multiply_wide(
    const WideProduct& product, int64_t first, int64_t last, float* scratch);
}

}  // namespace tandem
