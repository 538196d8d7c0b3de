// Compiled for AVX2 and NEON (lanes.h). On AVX-512 oneDNN's products are as fast.

#include "tandem/kernels/linear_loops.h"

#include "tandem/kernels/products.h"
#include "tandem/kernels/vectors.h"

namespace tandem::TANDEM_ISA {

void multiply_wide(const WideProduct& p, int64_t first, int64_t last, float* scratch) {
  for (int64_t column = first; column < last; column += kPanel) {
    const int64_t width = kPanel < last - column ? kPanel : last - column;
    // Copies the panel, because its rows are often a whole number of pages apart and
    // would compete for few sets of the cache. With 64 steps, the copy takes 8 KiB of
    // the L1 cache.
    for (int64_t step = 0; step < p.steps; ++step) {
      for (int64_t i = 0; i < width; i += kLanes) {
        store(load(p.b + step * p.columns + column + i), scratch + step * kPanel + i);
      }
    }
    const Factors factors = {p.a,    p.a_row,   p.a_step, scratch,
                             kPanel, p.columns, width,    p.steps};
    multiply(factors, p.rows, p.accumulate, p.sums + column);
  }
}

}  // namespace tandem::TANDEM_ISA
