// Compiled for AMX (CMakeLists.txt), so it must not include inline functions that other
// files use.

#include "tandem/kernels/amx_linear.h"

#include "tandem/kernels/amx_tiles.h"

namespace tandem::amx {

namespace {

// Number of inputs whose sums linear_backward_weight() keeps in registers at a time, in
// four tiles.
constexpr int64_t kColumns = 64;

int64_t grad_samples(const LinearShape& s) {
  return up_to(s.count, 2 * kTile);
}
int64_t grad_outputs(const LinearShape& s) {
  return up_to(s.out, 2 * kTile);
}
// Returns the second part of the rounded gradient, which is transposed. The first part
// contains left factors [tile of samples][step of 32 outputs], the second part left
// factors [tile of outputs][step of 32 samples].
const char* transposed(const LinearShape& s, const void* rounded) {
  return static_cast<const char*>(rounded) + grad_samples(s) * grad_outputs(s) * 2;
}

int64_t input_block(const LinearShape& s) {
  const int64_t rows = larger(grad_samples(s), grad_outputs(s));
  return smaller(block_of(2 * rows, kColumns, 512), up_to(s.in, kColumns));
}

// Writes the tile of 16 samples by 32 outputs that begins at (n, o).
void round_rows(
    const LinearShape& s, const float* grad_y, int64_t n, int64_t o, char* to) {
  for (int64_t i = 0; i < kTile; ++i) {
    const int64_t left = n + i < s.count ? s.out - o : 0;
    const float* from = grad_y + (n + i) * s.out + o;
    const __m512 low = _mm512_maskz_loadu_ps(first_16(left), from);
    const __m512 high = _mm512_maskz_loadu_ps(first_16(left - 16), from + 16);
    _mm512_store_si512(
        reinterpret_cast<__m512i*>(to + i * kRowBytes), narrow_pair(low, high));
  }
}

// Writes the tile of 16 outputs by 32 samples that begins at (o, n).
void round_columns(
    const LinearShape& s, const float* grad_y, int64_t n, int64_t o, char* to) {
  __m512i half[2][16];
  const __mmask16 mask = first_16(s.out - o);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < kTile; ++i) {
      const int64_t row = n + h * kTile + i;
      half[h][i] = row < s.count
                       ? _mm512_maskz_loadu_epi32(mask, grad_y + row * s.out + o)
                       : _mm512_setzero_si512();
    }
    transpose(half[h]);
  }
  for (int i = 0; i < 16; ++i) {
    _mm512_store_si512(
        reinterpret_cast<__m512i*>(to + i * kRowBytes),
        narrow_pair(_mm512_castsi512_ps(half[0][i]), _mm512_castsi512_ps(half[1][i])));
  }
}

// Writes the weights of `columns` inputs as right factors [tile of columns][step], with
// rows in pairs.
void pair_weights(
    const LinearShape& s, const float* weight, int64_t begin, int64_t columns,
    char* to) {
  const int64_t rows = grad_outputs(s);
  for (int64_t o = 0; o < rows; o += 2) {
    const float* even = weight + o * s.in + begin;
    const float* odd = even + s.in;
    char* out = to + o / kDepth * kTileBytes + o % kDepth / 2 * kRowBytes;
    for (int64_t k = 0; k < columns; k += kTile) {
      const __mmask16 mask = first_16(columns - k);
      const __mmask16 none = 0;
      const __m512 a = _mm512_maskz_loadu_ps(o < s.out ? mask : none, even + k);
      const __m512 b = _mm512_maskz_loadu_ps(o + 1 < s.out ? mask : none, odd + k);
      _mm512_store_si512(
          reinterpret_cast<__m512i*>(out + k / kTile * (rows / kDepth) * kTileBytes),
          interleave(a, b));
    }
  }
}

void pair_inputs(
    const LinearShape& s, const Bf16* x, int64_t begin, int64_t columns, char* to) {
  const int64_t rows = grad_samples(s);
  for (int64_t n = 0; n < rows; n += 2) {
    const Bf16* even = x + n * s.in + begin;
    const Bf16* odd = even + s.in;
    char* out = to + n / kDepth * kTileBytes + n % kDepth / 2 * kRowBytes;
    for (int64_t k = 0; k < columns; k += kTile) {
      const __mmask16 mask = first_16(columns - k);
      const __mmask16 none = 0;
      const __m256i a = _mm256_maskz_loadu_epi16(n < s.count ? mask : none, even + k);
      const __m256i b =
          _mm256_maskz_loadu_epi16(n + 1 < s.count ? mask : none, odd + k);
      _mm512_store_si512(
          reinterpret_cast<__m512i*>(out + k / kTile * (rows / kDepth) * kTileBytes),
          interleave(a, b));
    }
  }
}

// Computes 32 samples by 32 inputs with all eight tiles. Four products need four loads.
// The sums of a sample are a row of 32 floats.
//
//                      right: 6    7
//   left: 4     sums in tile: 0    1
//   left: 5                   2    3
void multiply_input(const char* grad, const char* weights, int64_t steps, float* sums) {
  const int64_t next = steps * kTileBytes;
  zero_four_sums();
  for (int64_t at = 0; at < next; at += kTileBytes) {
    _tile_loadd(4, grad + at, kRowBytes);
    _tile_loadd(6, weights + at, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + next + at, kRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, grad + next + at, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 2 * kRowBytes);
  _tile_stored(1, sums + kTile, 2 * kRowBytes);
  _tile_stored(2, sums + 2 * kSums, 2 * kRowBytes);
  _tile_stored(3, sums + 2 * kSums + kTile, 2 * kRowBytes);
}

inline void store_row(const float* sums, int64_t columns, float* to) {
  _mm512_mask_storeu_ps(to, first_16(columns), _mm512_load_ps(sums));
  _mm512_mask_storeu_ps(to + 16, first_16(columns - 16), _mm512_load_ps(sums + 16));
}
inline void store_row(const float* sums, int64_t columns, Bf16* to) {
  _mm512_mask_storeu_epi16(
      to, first_32(columns),
      narrow_pair(_mm512_load_ps(sums), _mm512_load_ps(sums + 16)));
}

// Computes 16 outputs by 64 inputs and writes them directly to rows that are `stride`
// floats apart.
void multiply_weight(
    const char* grad, const char* inputs, int64_t steps, bool accumulate, float* sums,
    int64_t stride) {
  const int64_t next = steps * kTileBytes;
  if (accumulate) {
    load_four_sums(sums, kTile, stride * 4);
  } else {
    zero_four_sums();
  }
  for (int64_t at = 0; at < next; at += kTileBytes) {
    multiply_four(grad + at, inputs + at, next);
  }
  store_four_sums(sums, kTile, stride * 4);
}

// Computes fewer than 16 outputs or 64 inputs, with sums in `buffer`.
void multiply_weight_edge(
    const char* grad, const char* inputs, int64_t steps, bool accumulate, float* sums,
    int64_t stride, int64_t rows, int64_t columns, float* buffer) {
  for (int64_t i = 0; accumulate && i < rows; ++i) {
    for (int64_t k = 0; k < kColumns; k += kTile) {
      _mm512_store_ps(
          buffer + i * kColumns + k,
          _mm512_maskz_loadu_ps(first_16(columns - k), sums + i * stride + k));
    }
  }
  fence();
  multiply_weight(grad, inputs, steps, accumulate, buffer, kColumns);
  fence();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < kColumns; k += kTile) {
      _mm512_mask_storeu_ps(
          sums + i * stride + k, first_16(columns - k),
          _mm512_load_ps(buffer + i * kColumns + k));
    }
  }
}

}  // namespace

int64_t rounded_grad_bytes(const LinearShape& s) {
  return 2 * grad_samples(s) * grad_outputs(s) * 2;
}

void round_grad(const LinearShape& s, const float* grad_y, void* rounded) {
  char* to = static_cast<char*>(rounded);
  for (int64_t n = 0; n < grad_samples(s); n += kTile) {
    for (int64_t o = 0; o < grad_outputs(s); o += kDepth) {
      round_rows(s, grad_y, n, o, to);
      to += kTileBytes;
    }
  }
  for (int64_t o = 0; o < grad_outputs(s); o += kTile) {
    for (int64_t n = 0; n < grad_samples(s); n += kDepth) {
      round_columns(s, grad_y, n, o, to);
      to += kTileBytes;
    }
  }
}

int64_t backward_scratch(const LinearShape& s) {
  const int64_t rows = larger(grad_samples(s), grad_outputs(s));
  return input_block(s) * rows * 2 + 4 * kTileBytes;
}

template <typename T>
void linear_backward_input(
    const LinearShape& s, Range inputs, const void* rounded_grad, const float* weight,
    T* grad_x, void* scratch) {
  const int64_t steps = grad_outputs(s) / kDepth;
  const char* grad = static_cast<const char*>(rounded_grad);
  auto* sums = static_cast<float*>(scratch);
  char* pairs = static_cast<char*>(scratch) + 4 * kTileBytes;
  const TileScope tiles;
  for (int64_t begin = inputs.begin; begin < inputs.end; begin += input_block(s)) {
    const int64_t columns = smaller(input_block(s), inputs.end - begin);
    pair_weights(s, weight, begin, columns, pairs);
    for (int64_t n = 0; n < s.count; n += 2 * kTile) {
      for (int64_t k = 0; k < columns; k += 2 * kTile) {
        fence();
        multiply_input(
            grad + n / kTile * steps * kTileBytes,
            pairs + k / kTile * steps * kTileBytes, steps, sums);
        fence();
        for (int64_t i = 0; i < smaller(2 * kTile, s.count - n); ++i) {
          store_row(
              sums + i * 2 * kTile, columns - k, grad_x + (n + i) * s.in + begin + k);
        }
      }
    }
  }
}

template void linear_backward_input(
    const LinearShape&, Range, const void*, const float*, float*, void*);
template void linear_backward_input(
    const LinearShape&, Range, const void*, const float*, Bf16*, void*);

void linear_backward_weight(
    const LinearShape& s, Range inputs, const void* rounded_grad, const Bf16* x,
    bool accumulate, float* grad_weight, void* scratch) {
  const int64_t steps = grad_samples(s) / kDepth;
  const char* grad = transposed(s, rounded_grad);
  auto* buffer = static_cast<float*>(scratch);
  char* pairs = static_cast<char*>(scratch) + 4 * kTileBytes;
  const TileScope tiles;
  for (int64_t begin = inputs.begin; begin < inputs.end; begin += input_block(s)) {
    const int64_t columns = smaller(input_block(s), inputs.end - begin);
    pair_inputs(s, x, begin, columns, pairs);
    fence();
    for (int64_t o = 0; o < s.out; o += kTile) {
      for (int64_t k = 0; k < columns; k += kColumns) {
        const char* a = grad + o / kTile * steps * kTileBytes;
        const char* b = pairs + k / kTile * steps * kTileBytes;
        float* sums = grad_weight + o * s.in + begin + k;
        if (o + kTile <= s.out && k + kColumns <= columns) {
          multiply_weight(a, b, steps, accumulate, sums, s.in);
        } else {
          multiply_weight_edge(
              a, b, steps, accumulate, sums, s.in, smaller(kTile, s.out - o),
              smaller(kColumns, columns - k), buffer);
        }
      }
    }
    fence();
  }
}

}  // namespace tandem::amx
