#pragma once

#include <cmath>

#include "tandem/kernels/cuda/mma.h"

/// A tile of a product of matrices, c = a * b, that a block of 128 threads computes: 64
/// x 64 or 128 x 32 elements of c, each warp 32 x 32 of them. Where the values of a and
/// b come from is for a Source to say; how they are multiplied, for an Arithmetic.
///
/// The block goes through k in stages. Of a stage, shared memory has a row of 64 bytes
/// for each row of a and each column of b: 8 values of k of float64, 16 of float32 and
/// tf32, 32 of bf16. Rows are 80 bytes apart, 20 banks: the eight rows from which a
/// warp reads at once, by words (mma's fragments) or by 16 bytes (without mma), begin
/// in other banks each, and so do those which it writes by 16 bytes. There are two such
/// buffers, so that a stage is one barrier: while one is multiplied, the next stage's
/// values are on their way into registers, and then to the other.

namespace tandem::cuda {

constexpr unsigned kTileThreads = 128;
constexpr unsigned kVectorBytes = 16;
constexpr unsigned kRowBytes = 64;
constexpr unsigned kRowStrideBytes = kRowBytes + kVectorBytes;
constexpr unsigned kWarpSide = 32;

/// What one instruction reads from or writes to shared memory.
template <typename Word>
struct alignas(kVectorBytes) Vector {
  Word words[kVectorBytes / sizeof(Word)];
};

/// Writes values that lie side by side in a row of a stage, by vectors.
template <typename Arithmetic, unsigned count>
__device__ __forceinline__ void store_vectors(
    const typename Arithmetic::Value (&values)[count],
    typename Arithmetic::Word* words) {
  using Word = typename Arithmetic::Word;
  constexpr unsigned kInVector = kVectorBytes / sizeof(Word);
  TANDEM_UNROLL
  for (unsigned i = 0; i < count / Arithmetic::kPerWord; i += kInVector) {
    Vector<Word> vector;
    TANDEM_UNROLL
    for (unsigned w = 0; w < kInVector; ++w) {
      vector.words[w] = Arithmetic::word(values + (i + w) * Arithmetic::kPerWord);
    }
    *reinterpret_cast<Vector<Word>*>(words + i) = vector;
  }
}

/// Writes values that lie in rows, a word in each of them, `step` words apart.
template <typename Arithmetic, unsigned count>
__device__ __forceinline__ void store_words(
    const typename Arithmetic::Value (&values)[count], typename Arithmetic::Word* words,
    unsigned step) {
  TANDEM_UNROLL
  for (unsigned i = 0; i < count / Arithmetic::kPerWord; ++i) {
    words[i * step] = Arithmetic::word(values + i * Arithmetic::kPerWord);
  }
}

/// A lane's part of a warp's 32 x 32 sums, as mma's fragments have it: sums[i][j][e] is
/// of row 16 i + 8 (e / 2) + g and column 8 j + 2 t + e % 2.
template <typename T>
using Sums = T[2][4][4];

/// One multiply-add for each product, of T: float or double.
template <typename T>
struct PlainProducts {
  using Value = T;
  using Word = T;
  static constexpr unsigned kPerWord = 1;
  static constexpr bool kMatrices = false;

  static __device__ __forceinline__ Word word(const T* values) {
    return values[0];
  }
};

/// Operands rounded to tf32, sums of float32.
struct Tf32Products {
  using Value = float;
  using Word = uint32_t;
  static constexpr unsigned kPerWord = 1;
  static constexpr bool kMatrices = true;

  static __device__ __forceinline__ Word word(const float* values) {
    return to_tf32(values[0]);
  }
  static __device__ __forceinline__ void mma(
      float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma_tf32(c, a, b);
  }
};

/// Operands rounded to bf16, sums of float32.
struct Bf16Products {
  using Value = float;
  using Word = uint32_t;
  static constexpr unsigned kPerWord = 2;
  static constexpr bool kMatrices = true;

  static __device__ __forceinline__ Word word(const float* values) {
    return to_bf16_pair(values[0], values[1]);
  }
  static __device__ __forceinline__ void mma(
      float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma_bf16(c, a, b);
  }
};

/// The sizes of a tile: 64 x 64 or 128 x 32.
template <typename Arithmetic, unsigned rows, unsigned columns>
struct Tile {
  using Word = typename Arithmetic::Word;
  using Value = typename Arithmetic::Value;
  static constexpr unsigned kRows = rows;
  static constexpr unsigned kColumns = columns;
  static constexpr unsigned kWarpRows = rows / kWarpSide;
  // Of a row in shared memory: words, and how far apart rows are.
  static constexpr unsigned kWords = kRowBytes / sizeof(Word);
  static constexpr unsigned kStride = kRowStrideBytes / sizeof(Word);
  // Values of k in a stage.
  static constexpr unsigned kDepth = kWords * Arithmetic::kPerWord;
  static constexpr unsigned kStageWords = (rows + columns) * kStride;
  static constexpr unsigned kSharedBytes = 2 * kStageWords * sizeof(Word);
  static_assert(rows * columns == kTileThreads / kWarpSize * kWarpSide * kWarpSide);

  static __device__ unsigned stages(int depth) {
    return (static_cast<unsigned>(depth) + kDepth - 1) / kDepth;
  }
  // Of this warp, the first of its rows and columns in the tile.
  static __device__ unsigned warp_row() {
    return threadIdx.x / kWarpSize % kWarpRows * kWarpSide;
  }
  static __device__ unsigned warp_column() {
    return threadIdx.x / kWarpSize / kWarpRows * kWarpSide;
  }
};

template <typename Word>
__device__ __forceinline__ const Vector<Word>& vector_at(const Word* words) {
  return *reinterpret_cast<const Vector<Word>*>(words);
}

/// sums += a * b over one stage. `a`, `b`: the first of this warp's rows in shared
/// memory.
template <typename Tile, typename Arithmetic>
__device__ __forceinline__ void multiply_by_mma(
    Sums<float>& sums, const uint32_t* a, const uint32_t* b) {
  constexpr unsigned kStride = Tile::kStride;
  const unsigned g = threadIdx.x % kWarpSize / 4;
  const unsigned t = threadIdx.x % 4;
  TANDEM_UNROLL
  for (unsigned first = 0; first < Tile::kWords; first += 8) {
    uint32_t of_a[2][4];
    TANDEM_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      const uint32_t* words = a + (16 * i + g) * kStride + first + t;
      of_a[i][0] = words[0];
      of_a[i][1] = words[8 * kStride];
      of_a[i][2] = words[4];
      of_a[i][3] = words[8 * kStride + 4];
    }
    TANDEM_UNROLL
    for (unsigned j = 0; j < 4; ++j) {
      const uint32_t* words = b + (8 * j + g) * kStride + first + t;
      const uint32_t of_b[2] = {words[0], words[4]};
      Arithmetic::mma(sums[0][j], of_a[0], of_b);
      Arithmetic::mma(sums[1][j], of_a[1], of_b);
    }
  }
}

template <typename Tile, typename T>
__device__ __forceinline__ void multiply_plainly(
    Sums<T>& sums, const T* a, const T* b) {
  constexpr unsigned kStride = Tile::kStride;
  constexpr unsigned kInVector = kVectorBytes / sizeof(T);
  const unsigned g = threadIdx.x % kWarpSize / 4;
  const unsigned t = threadIdx.x % 4;
  TANDEM_UNROLL
  for (unsigned first = 0; first < Tile::kWords; first += kInVector) {
    Vector<T> rows[4];
    TANDEM_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      rows[i] = vector_at(a + (8 * i + g) * kStride + first);
    }
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      const unsigned n = 8 * (j / 2) + 2 * t + j % 2;
      const Vector<T> column = vector_at(b + n * kStride + first);
      TANDEM_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        T& sum = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
        TANDEM_UNROLL
        for (unsigned k = 0; k < kInVector; ++k) {
          sum = std::fma(rows[i].words[k], column.words[k], sum);
        }
      }
    }
  }
}

/// sums = a * b over all stages. All threads of the block call it. `shared`:
/// Tile::kSharedBytes, at a multiple of 16 bytes.
///
/// Of a Source: prepare(stage) writes what fetch(stage) reads from shared memory, at a
/// place that only stages of the same parity share; fetch(stage) loads values into
/// registers; store(a, b) writes them to the rows of a stage.
template <typename Tile, typename Arithmetic, typename Source>
__device__ __forceinline__ void multiply_stages(
    Source& source, unsigned stages, typename Tile::Word* shared,
    Sums<typename Tile::Value>& sums) {
  constexpr unsigned kColumnsAt = Tile::kRows * Tile::kStride;
  source.prepare(0);
  source.prepare(1);
  __syncthreads();
  source.fetch(0);
  source.store(shared, shared + kColumnsAt);
  __syncthreads();
  for (unsigned stage = 0; stage < stages; ++stage) {
    const bool more = stage + 1 < stages;
    if (more) {
      source.prepare(stage + 2);
      source.fetch(stage + 1);
    }
    const auto* now = shared + stage % 2 * Tile::kStageWords;
    const auto* a = now + Tile::warp_row() * Tile::kStride;
    const auto* b = now + kColumnsAt + Tile::warp_column() * Tile::kStride;
    if constexpr (Arithmetic::kMatrices) {
      multiply_by_mma<Tile, Arithmetic>(sums, a, b);
    } else {
      multiply_plainly<Tile>(sums, a, b);
    }
    if (more) {
      auto* next = shared + (stage + 1) % 2 * Tile::kStageWords;
      source.store(next, next + kColumnsAt);
    }
    __syncthreads();
  }
}

/// Sets gradients behind a ReLU to 0 where its output is not above 0: values[i] where
/// output(i) is not. So many at once, that their loads do not wait for each other.
template <unsigned count, typename T, typename Output>
__device__ __forceinline__ void close_gates(T (&values)[count], Output&& output) {
  constexpr unsigned kAtOnce = count < 8 ? count : 8;
  static_assert(count % kAtOnce == 0);
  TANDEM_UNROLL
  for (unsigned first = 0; first < count; first += kAtOnce) {
    T outputs[kAtOnce];
    TANDEM_UNROLL
    for (unsigned i = 0; i < kAtOnce; ++i) {
      outputs[i] = output(first + i);
    }
    TANDEM_UNROLL
    for (unsigned i = 0; i < kAtOnce; ++i) {
      values[first + i] = outputs[i] <= 0 ? T(0) : values[first + i];
    }
  }
}

/// Calls body(row, column, sum) for this lane's elements of the tile, row by row.
template <typename Tile, typename T, typename Body>
__device__ __forceinline__ void for_each_row(const Sums<T>& sums, Body&& body) {
  const unsigned g = threadIdx.x % kWarpSize / 4;
  TANDEM_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    T of_row[8];
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      of_row[j] = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
    }
    body(Tile::warp_row() + 8 * i + g, of_row);
  }
}

/// The column in the tile of a row's element j, 0 to 7, in for_each_row().
template <typename Tile>
__device__ __forceinline__ unsigned column_of(unsigned j) {
  return Tile::warp_column() + 8 * (j / 2) + 2 * (threadIdx.x % 4) + j % 2;
}

}  // namespace tandem::cuda
