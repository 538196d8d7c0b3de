#pragma once

// The products of transformed tiles. Compiled for AVX-512 only, see lanes.h.

#include <cstdint>

#include "tandem/kernels/winograd_vectors.h"

namespace tandem::TANDEM_ISA {

namespace {

// A product of matrices: sums[row][column] of a[row][step] * b[step][column].
struct Factors {
  const float* a;
  int64_t a_row;
  int64_t a_step;
  const float* b;
  // The width of b and of the sums.
  int64_t columns;
  int64_t steps;
};

// A block of R rows by B vectors. The largest, 6 x 4, takes 29 of the 32 registers: 24
// sums, 4 vectors of b and one value of a. All blocks of 64 columns run before the next
// columns, so b's part, steps * 256 bytes, stays in L1: 16 KiB at 64 channels.
template <int R, int B>
TANDEM_ALWAYS_INLINE void multiply_block(
    const Factors& f, int64_t row, int64_t column, bool accumulate, float* sums) {
  Floats sum[R][B];
  float* to = sums + row * f.columns + column;
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) {
      sum[r][b] = accumulate ? load(to + r * f.columns + b * kLanes) : Floats{};
    }
  }
  const float* a = f.a + row * f.a_row;
  const float* from = f.b + column;
  for (int64_t step = 0; step < f.steps; ++step) {
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
    from += f.columns;
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) {
      store(sum[r][b], to + r * f.columns + b * kLanes);
    }
  }
}

template <int B>
void multiply_columns(
    const Factors& f, int64_t rows, int64_t column, bool accumulate, float* sums) {
  int64_t row = 0;
  for (; row + 6 <= rows; row += 6) {
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
  for (; column + 4 * kLanes <= f.columns; column += 4 * kLanes) {
    multiply_columns<4>(f, rows, column, accumulate, sums);
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
