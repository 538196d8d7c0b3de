#pragma once

// Products of matrices that fit into the CPU's caches. Source files that include this
// header are compiled once for each instruction set (lanes.h).

#include <cstdint>

#include "tandem/kernels/vectors.h"

namespace tandem::TANDEM_ISA {

namespace {

// Factors of the product sums[row][column] = sum over steps of a[row][step] *
// b[step][column]. `a_row`, `a_step`, `b_step` and `sums_row` are the distances between
// neighboring rows or steps in memory, in floats.
struct Factors {
  const float* a;
  int64_t a_row;
  int64_t a_step;
  const float* b;
  int64_t b_step;
  int64_t sums_row;
  int64_t columns;
  int64_t steps;
};

// Number of vectors in a row of the largest block.
constexpr int kWide = kRegisters == 32 ? 4 : 2;

// Computes a block of R rows by B vectors. The largest block, 6 x kWide, needs 29 of
// the 32 registers on AVX-512 and NEON: 24 sums, 4 vectors of b and one value of a. On
// AVX2 it needs 15 of 16: 12 sums, 2 vectors of b and one value of a.
//
// multiply() computes all rows for a block's columns before it continues with the next
// columns, so these columns of b stay in the L1 cache. For 64 channels, they have 16
// KiB on AVX-512 and 4 KiB on AVX2 and NEON.
template <int R, int B>
TANDEM_ALWAYS_INLINE void multiply_block(
    const Factors& f, int64_t row, int64_t column, bool accumulate, float* sums) {
  const int64_t sums_row = f.sums_row;
  const int64_t b_step = f.b_step;
  const int64_t steps = f.steps;
  Floats sum[R][B];
  float* to = sums + row * sums_row + column;
  // Without unrolling, the compiler would keep the sums on the stack.
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      sum[r][b] = accumulate ? load(to + r * sums_row + b * kLanes) : Floats{};
    }
  }
  const float* a = f.a + row * f.a_row;
  const float* from = f.b + column;
  for (int64_t step = 0; step < steps; ++step) {
    Floats factor[B];
    for (int b = 0; b < B; ++b) {
      factor[b] = load(from + b * kLanes);
    }
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < B; ++b) {
        sum[r][b] += factor[b] * a[r * f.a_row];
      }
    }
    a += f.a_step;
    from += b_step;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      store(sum[r][b], to + r * sums_row + b * kLanes);
    }
  }
}

template <int B>
void multiply_columns(
    const Factors& f, int64_t rows, int64_t column, bool accumulate, float* sums) {
  int64_t row = 0;
  for (; row + 6 <= rows; row += 6) {
    // Computes the last 8 rows as 4 + 4 instead of 6 + 2, because a block of two rows
    // has too few independent sums.
    if (kWide == 2 && rows - row == 8) {
      multiply_block<4, B>(f, row, column, accumulate, sums);
      multiply_block<4, B>(f, row + 4, column, accumulate, sums);
      return;
    }
    multiply_block<6, B>(f, row, column, accumulate, sums);
  }
  for (; row + 2 <= rows; row += 2) {
    multiply_block<2, B>(f, row, column, accumulate, sums);
  }
  for (; row < rows; ++row) {
    multiply_block<1, B>(f, row, column, accumulate, sums);
  }
}

void multiply(const Factors& f, int64_t rows, bool accumulate, float* sums) {
  int64_t column = 0;
  for (; column + kWide * kLanes <= f.columns; column += kWide * kLanes) {
    multiply_columns<kWide>(f, rows, column, accumulate, sums);
  }
  for (; column + 2 * kLanes <= f.columns; column += 2 * kLanes) {
    multiply_columns<2>(f, rows, column, accumulate, sums);
  }
  for (; column < f.columns; column += kLanes) {
    multiply_columns<1>(f, rows, column, accumulate, sums);
  }
}

}  // namespace

}  // namespace tandem::TANDEM_ISA
