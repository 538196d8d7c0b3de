#pragma once

#include <immintrin.h>

#include <cstdint>

// Functions for kernels with AMX tiles. Only files compiled for AMX include this
// header.
//
// A tile is a register of 16 rows of 64 bytes; a core has eight. One instruction
// computes C += A B with bfloat16 factors and float32 sums. B is stored in pairs of
// rows: row i of the tile has rows 2i and 2i + 1 of the matrix. The two values of a
// column are next to each other.
//
//   A, left: 16 x 32       B, right: 32 x 16                     C, sums: 16 x 16
//   a0,0  ... a0,31        b0,0  b1,0   b0,1  b1,1  ... b1,15    c0,0  ... c0,15
//   a1,0  ... a1,31        b2,0  b3,0   b2,1  b3,1  ... b3,15    c1,0  ... c1,15
//    :                      :                                     :
//   a15,0 ... a15,31       b30,0 b31,0  b30,1 b31,1 ... b31,15   c15,0 ... c15,15

namespace tandem::amx {

namespace {

constexpr int64_t kTile = 16;
// Number of products that a multiplication of two tiles adds to each sum.
constexpr int64_t kDepth = 32;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kRowBytes = 64;
// Number of elements in a tile of float32 and in a tile of bfloat16.
constexpr int64_t kSums = 256;
constexpr int64_t kHalves = 512;

constexpr int64_t up_to(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
constexpr int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// Returns the number of rows of `row_bytes` bytes in a block. They fit into 256 KiB of
// the L2 cache, which leaves space for streamed data. The result is a multiple of
// `unit`, at least `unit` and at most `most`.
constexpr int64_t block_of(int64_t row_bytes, int64_t unit, int64_t most) {
  constexpr int64_t kBlockBytes = 256 * 1024;
  const int64_t fitting = kBlockBytes / row_bytes / unit * unit;
  return larger(unit, smaller(fitting, most));
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Prevents the compiler from moving other memory accesses across tile instructions. The
// compiler does not know which memory tile instructions read and write.
inline void fence() {
  __asm__ volatile("" ::: "memory");
}

// Configures all eight tiles with their full size while the object exists. oneDNN's
// kernels change the configuration, so each kernel needs a TileScope.
class TileScope {
 public:
  TileScope() {
    static constexpr TileConfig kConfig;
    _tile_loadconfig(&kConfig);
    fence();
  }
  ~TileScope() {
    fence();
    _tile_release();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Returns a mask of the first `count` lanes, of 16 or 32 lanes. If `count` is negative,
// the mask is empty.
inline __mmask16 first_16(int64_t count) {
  return count >= 16  ? static_cast<__mmask16>(0xFFFF)
         : count <= 0 ? static_cast<__mmask16>(0)
                      : static_cast<__mmask16>((1U << count) - 1);
}
inline __mmask32 first_32(int64_t count) {
  return count >= 32  ? static_cast<__mmask32>(~0U)
         : count <= 0 ? static_cast<__mmask32>(0)
                      : static_cast<__mmask32>((1U << count) - 1);
}

inline __m512i narrow_pair(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Converts two vectors to bfloat16 and interleaves them: 32-bit lane i of the result is
// (even[i], odd[i]).
inline __m512i interleave(__m512 even, __m512 odd) {
  const __m512i order = _mm512_set_epi16(
      31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
      20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, narrow_pair(even, odd));
}
inline __m512i interleave(__m256i even, __m256i odd) {
  return _mm512_or_si512(
      _mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

// Functions that set the sums in tiles 0 to 3 to zero, load them or store them. In
// memory, each tile begins `step` floats after the previous tile, and its rows are
// `row_bytes` apart.
inline void zero_four_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
inline void load_four_sums(const float* sums, int64_t step, int64_t row_bytes) {
  _tile_loadd(0, sums, row_bytes);
  _tile_loadd(1, sums + step, row_bytes);
  _tile_loadd(2, sums + 2 * step, row_bytes);
  _tile_loadd(3, sums + 3 * step, row_bytes);
}
inline void store_four_sums(float* sums, int64_t step, int64_t row_bytes) {
  _tile_stored(0, sums, row_bytes);
  _tile_stored(1, sums + step, row_bytes);
  _tile_stored(2, sums + 2 * step, row_bytes);
  _tile_stored(3, sums + 3 * step, row_bytes);
}

// Adds the products of the tile at `a` and four tiles at `b` to the sums in tiles 0 to
// 3. The four tiles are `b_next` bytes apart. Tile 4 is the left factor. Tiles 5 and 6
// alternate as the right factor.
inline void multiply_four(const char* a, const char* b, int64_t b_next) {
  _tile_loadd(4, a, kRowBytes);
  _tile_loadd(5, b, kRowBytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(6, b + b_next, kRowBytes);
  _tile_dpbf16ps(1, 4, 6);
  _tile_loadd(5, b + 2 * b_next, kRowBytes);
  _tile_dpbf16ps(2, 4, 5);
  _tile_loadd(6, b + 3 * b_next, kRowBytes);
  _tile_dpbf16ps(3, 4, 6);
}

// Transposes a matrix of 16 x 16 elements of 4 bytes in place.
inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xDD);
    }
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
  }
}

}  // namespace

}  // namespace tandem::amx
