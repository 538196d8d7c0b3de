#pragma once

// Winograd's transforms of tiles, windows and their gradients (winograd_loops.h names
// the paper). Source files that include this header are compiled for AVX-512, AVX2 and
// NEON (lanes.h).

#include "tandem/kernels/vectors.h"

namespace tandem::TANDEM_ISA {

namespace {

// Notation of the paper: d is 6 x 6 inputs, g is a window, Y is 4 x 4 outputs, ' marks
// a transposed matrix, and o is the elementwise product. With these, Y = A' [(G g G') o
// (B' d B)] A, and the gradient of g is G' [(B' d B) o (A dY A')] G. For the points 0,
// a, -a, b, -b and infinity, with c = a^2 b^2 and s = a^2 + b^2:
//
//   B'  c   0      -s    0  1  0    A'  1  1    1    1    1    0    G  1/c   0  0
//       0  -ab^2   -b^2  a  1  0        0  a   -a    b   -b    0       p    pa  pa^2
//       0   ab^2   -b^2 -a  1  0        0  a^2  a^2  b^2  b^2  0       p   -pa  pa^2
//       0  -a^2b   -a^2  b  1  0        0  a^3 -a^3  b^3 -b^3  1       q    qb  qb^2
//       0   a^2b   -a^2 -b  1  0                                       q   -qb  qb^2
//       0   c       0   -s  0  1     p = kOfA, q = kOfB                0     0  1
//
// The paper has a = 1 and b = 2. With 5/8 and 3/2, as in oneDNN, the elements have
// similar sizes, and rounding errors are about half as large. The structs below apply
// B', A', A, G and G' to a line of values.
constexpr float kA = 0.625F;
constexpr float kB = 1.5F;
constexpr float kA2 = kA * kA;
constexpr float kB2 = kB * kB;
constexpr float kA3 = kA2 * kA;
constexpr float kB3 = kB2 * kB;
constexpr float kOf0 = 1 / (kA2 * kB2);
constexpr float kOfA = 1 / (2 * kA2 * (kA2 - kB2));
constexpr float kOfB = 1 / (2 * kB2 * (kB2 - kA2));

struct InputTransform {
  static constexpr int kFrom = 6;
  static constexpr int kTo = 6;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[6], Floats (&y)[6]) {
    const Floats a = x[4] - kB2 * x[2];
    const Floats b = kA * (x[3] - kB2 * x[1]);
    const Floats c = x[4] - kA2 * x[2];
    const Floats d = kB * (x[3] - kA2 * x[1]);
    y[0] = kA2 * kB2 * x[0] - (kA2 + kB2) * x[2] + x[4];
    y[1] = a + b;
    y[2] = a - b;
    y[3] = c + d;
    y[4] = c - d;
    y[5] = kA2 * kB2 * x[1] - (kA2 + kB2) * x[3] + x[5];
  }
};

struct OutputTransform {
  static constexpr int kFrom = 6;
  static constexpr int kTo = 4;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[6], Floats (&y)[4]) {
    const Floats a = x[1] + x[2];
    const Floats b = x[1] - x[2];
    const Floats c = x[3] + x[4];
    const Floats d = x[3] - x[4];
    y[0] = x[0] + a + c;
    y[1] = kA * b + kB * d;
    y[2] = kA2 * a + kB2 * c;
    y[3] = kA3 * b + kB3 * d + x[5];
  }
};

struct GradTransform {
  static constexpr int kFrom = 4;
  static constexpr int kTo = 6;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[4], Floats (&y)[6]) {
    const Floats a = x[0] + kA2 * x[2];
    const Floats b = kA * x[1] + kA3 * x[3];
    const Floats c = x[0] + kB2 * x[2];
    const Floats d = kB * x[1] + kB3 * x[3];
    y[0] = x[0];
    y[1] = a + b;
    y[2] = a - b;
    y[3] = c + d;
    y[4] = c - d;
    y[5] = x[3];
  }
};

struct WeightsTransform {
  static constexpr int kFrom = 3;
  static constexpr int kTo = 6;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[3], Floats (&y)[6]) {
    const Floats a = kOfA * (x[0] + kA2 * x[2]);
    const Floats b = kOfA * kA * x[1];
    const Floats c = kOfB * (x[0] + kB2 * x[2]);
    const Floats d = kOfB * kB * x[1];
    y[0] = kOf0 * x[0];
    y[1] = a + b;
    y[2] = a - b;
    y[3] = c + d;
    y[4] = c - d;
    y[5] = x[2];
  }
};

struct WeightsGradTransform {
  static constexpr int kFrom = 6;
  static constexpr int kTo = 3;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[6], Floats (&y)[3]) {
    const Floats a = kOfA * (x[1] + x[2]);
    const Floats b = kOfA * (x[1] - x[2]);
    const Floats c = kOfB * (x[3] + x[4]);
    const Floats d = kOfB * (x[3] - x[4]);
    y[0] = kOf0 * x[0] + a + c;
    y[1] = kA * b + kB * d;
    y[2] = kA2 * a + kB2 * c + x[5];
  }
};

// Transforms for windows of 5 x 5 and tiles of 2 x 2. Compared to 3 x 3, A' has only
// the first two rows, and the second row ends in 1. G has columns up to the fourth
// power.
constexpr float kA4 = kA2 * kA2;
constexpr float kB4 = kB2 * kB2;

struct OutputTransform5 {
  static constexpr int kFrom = 6;
  static constexpr int kTo = 2;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[6], Floats (&y)[2]) {
    y[0] = x[0] + (x[1] + x[2]) + (x[3] + x[4]);
    y[1] = kA * (x[1] - x[2]) + kB * (x[3] - x[4]) + x[5];
  }
};

struct GradTransform5 {
  static constexpr int kFrom = 2;
  static constexpr int kTo = 6;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[2], Floats (&y)[6]) {
    y[0] = x[0];
    y[1] = x[0] + kA * x[1];
    y[2] = x[0] - kA * x[1];
    y[3] = x[0] + kB * x[1];
    y[4] = x[0] - kB * x[1];
    y[5] = x[1];
  }
};

struct WeightsTransform5 {
  static constexpr int kFrom = 5;
  static constexpr int kTo = 6;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[5], Floats (&y)[6]) {
    const Floats a = kOfA * (x[0] + kA2 * x[2] + kA4 * x[4]);
    const Floats b = kOfA * (kA * x[1] + kA3 * x[3]);
    const Floats c = kOfB * (x[0] + kB2 * x[2] + kB4 * x[4]);
    const Floats d = kOfB * (kB * x[1] + kB3 * x[3]);
    y[0] = kOf0 * x[0];
    y[1] = a + b;
    y[2] = a - b;
    y[3] = c + d;
    y[4] = c - d;
    y[5] = x[4];
  }
};

struct WeightsGradTransform5 {
  static constexpr int kFrom = 6;
  static constexpr int kTo = 5;
  TANDEM_ALWAYS_INLINE static void line(const Floats (&x)[6], Floats (&y)[5]) {
    const Floats a = kOfA * (x[1] + x[2]);
    const Floats b = kOfA * (x[1] - x[2]);
    const Floats c = kOfB * (x[3] + x[4]);
    const Floats d = kOfB * (x[3] - x[4]);
    y[0] = kOf0 * x[0] + a + c;
    y[1] = kA * b + kB * d;
    y[2] = kA2 * a + kB2 * c;
    y[3] = kA3 * b + kB3 * d;
    y[4] = kA4 * a + kB4 * c + x[5];
  }
};

// Transforms a square of values along its rows and then along its columns. The
// transform needs more vectors than the CPU has registers, so the compiler keeps some
// vectors on the stack. With AVX2's 16 registers, most vectors are on the stack, in 1.1
// KiB of the L1 cache.
template <typename T>
TANDEM_ALWAYS_INLINE void transform(
    const Floats (&from)[T::kFrom][T::kFrom], Floats (&to)[T::kTo][T::kTo]) {
  Floats half[T::kFrom][T::kTo];
  for (int y = 0; y < T::kFrom; ++y) {
    T::line(from[y], half[y]);
  }
  for (int x = 0; x < T::kTo; ++x) {
    Floats column[T::kFrom];
    Floats done[T::kTo];
    for (int y = 0; y < T::kFrom; ++y) {
      column[y] = half[y][x];
    }
    T::line(column, done);
    for (int y = 0; y < T::kTo; ++y) {
      to[y][x] = done[y];
    }
  }
}

// Constants and transforms for windows of 3 x 3 and of 5 x 5.
struct Window3 {
  static constexpr int kWindow = 3;
  static constexpr int kTile = 4;
  using Output = OutputTransform;
  using Grad = GradTransform;
  using Weights = WeightsTransform;
  using WeightsGrad = WeightsGradTransform;
};
struct Window5 {
  static constexpr int kWindow = 5;
  static constexpr int kTile = 2;
  using Output = OutputTransform5;
  using Grad = GradTransform5;
  using Weights = WeightsTransform5;
  using WeightsGrad = WeightsGradTransform5;
};

}  // namespace

}  // namespace tandem::TANDEM_ISA
