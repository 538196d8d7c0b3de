// Compiled for AMX (CMakeLists.txt), so it must not include inline functions that other
// files use.

#include "tandem/kernels/amx_linear.h"

#include "tandem/kernels/amx_tiles.h"

namespace tandem::amx {

namespace {

// Number of tiles of samples for which the forward product keeps sums in registers.
constexpr int64_t kSampleTiles = 4;

struct ForwardPlan {
  // Number of samples, padded to whole groups of four tiles.
  int64_t samples;
  // Number of inputs that are multiplied together.
  int64_t block;
  // Sizes of the first two parts of the scratch memory, in bytes. For up to 4096
  // samples:
  //   | a block of all samples | a block of 16 outputs | sums: outputs x samples |
  //     at most 256 KiB          at most 32 KiB          float32, in tiles
  int64_t input_bytes;
  int64_t weight_bytes;
};

ForwardPlan plan_forward(const LinearShape& s) {
  ForwardPlan p;
  p.samples = up_to(s.count, kTile * kSampleTiles);
  p.block = smaller(block_of(2 * p.samples, kDepth, 1024), up_to(s.in, kDepth));
  p.input_bytes = p.block * p.samples * 2;
  p.weight_bytes = p.block * kTile * 2;
  return p;
}

// Writes the 16 samples at `x` as a right factor. Only the first `rows` samples exist.
inline void transpose_inputs(
    const Bf16* x, int64_t stride, int64_t rows, int64_t inputs, __m512i* to) {
  const __mmask32 mask = first_32(inputs);
  __m512i r[16];
  for (int64_t i = 0; i < 16; ++i) {
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, x + i * stride)
                    : _mm512_setzero_si512();
  }
  transpose(r);
  for (int i = 0; i < 16; ++i) {
    _mm512_store_si512(to + i, r[i]);
  }
}

// Writes a block of all samples' inputs as right factors [step][tile of samples].
void pack_inputs(
    const LinearShape& s, const ForwardPlan& p, const Bf16* x, int64_t begin,
    int64_t inputs, char* to) {
  for (int64_t k = 0; k < inputs; k += kDepth) {
    for (int64_t n = 0; n < p.samples; n += kTile) {
      transpose_inputs(
          x + n * s.in + begin + k, s.in, s.count - n, inputs - k,
          reinterpret_cast<__m512i*>(to));
      to += kTileBytes;
    }
  }
}

// Writes 16 rows of weights as left factors [step]. Reads row by row, because this is
// the fastest order to read from memory.
void pack_weights(
    const float* weight, int64_t stride, int64_t rows, int64_t inputs, char* to) {
  const int64_t steps = up_to(inputs, kDepth) / kDepth;
  for (int64_t i = 0; i < kTile; ++i) {
    const float* from = weight + i * stride;
    char* out = to + i * kRowBytes;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t left = i < rows ? inputs - step * kDepth : 0;
      const __m512 low = _mm512_maskz_loadu_ps(first_16(left), from + step * kDepth);
      const __m512 high =
          _mm512_maskz_loadu_ps(first_16(left - 16), from + step * kDepth + 16);
      _mm512_store_si512(
          reinterpret_cast<__m512i*>(out + step * kTileBytes), narrow_pair(low, high));
    }
  }
}

// Adds the products of 16 outputs and 64 samples to `sums`, four tiles.
void multiply_forward(
    const char* weights, const char* inputs, int64_t input_stride, int64_t steps,
    bool first, float* sums) {
  if (first) {
    zero_four_sums();
  } else {
    load_four_sums(sums, kSums, kRowBytes);
  }
  for (int64_t step = 0; step < steps; ++step) {
    multiply_four(
        weights + step * kTileBytes, inputs + step * input_stride, kTileBytes);
  }
  store_four_sums(sums, kSums, kRowBytes);
}

// Adds the bias to a tile of sums [output][sample] and writes the result to `y`, one
// row per sample.
void finish_outputs(
    const LinearShape& s, const float* sums, int64_t n, int64_t o, const float* bias,
    bool relu, float* y) {
  __m512i r[16];
  for (int i = 0; i < 16; ++i) {
    r[i] = _mm512_load_si512(sums + i * kTile);
  }
  transpose(r);
  const __mmask16 mask = first_16(s.out - o);
  const __m512 plus = _mm512_maskz_loadu_ps(mask, bias + o);
  for (int64_t i = 0; i < smaller(kTile, s.count - n); ++i) {
    __m512 value = _mm512_add_ps(_mm512_castsi512_ps(r[i]), plus);
    if (relu) {
      // Keeps NaN: if one operand is NaN, the instruction returns the second.
      value = _mm512_max_ps(_mm512_setzero_ps(), value);
    }
    _mm512_mask_storeu_ps(y + (n + i) * s.out + o, mask, value);
  }
}

}  // namespace

int64_t forward_scratch(const LinearShape& s, Range outputs) {
  const ForwardPlan p = plan_forward(s);
  return p.input_bytes + p.weight_bytes +
         up_to(outputs.end - outputs.begin, kTile) * p.samples * 4;
}

void linear_forward(
    const LinearShape& s, Range outputs, const Bf16* x, const float* weight,
    const float* bias, bool relu, float* y, void* scratch) {
  const ForwardPlan p = plan_forward(s);
  char* packed_inputs = static_cast<char*>(scratch);
  char* packed_weights = packed_inputs + p.input_bytes;
  auto* sums = reinterpret_cast<float*>(packed_weights + p.weight_bytes);
  const TileScope tiles;
  for (int64_t k = 0; k < s.in; k += p.block) {
    const int64_t inputs = smaller(p.block, s.in - k);
    const int64_t steps = up_to(inputs, kDepth) / kDepth;
    pack_inputs(s, p, x, k, inputs, packed_inputs);
    for (int64_t o = outputs.begin; o < outputs.end; o += kTile) {
      pack_weights(weight + o * s.in + k, s.in, s.out - o, inputs, packed_weights);
      fence();
      for (int64_t n = 0; n < p.samples; n += kTile * kSampleTiles) {
        multiply_forward(
            packed_weights, packed_inputs + n / kTile * kTileBytes,
            p.samples / kTile * kTileBytes, steps, k == 0,
            sums + (o - outputs.begin) * p.samples + n * kTile);
      }
      fence();
    }
  }
  for (int64_t o = outputs.begin; o < outputs.end; o += kTile) {
    for (int64_t n = 0; n < s.count; n += kTile) {
      finish_outputs(
          s, sums + (o - outputs.begin) * p.samples + n * kTile, n, o, bias, relu, y);
    }
  }
}

}  // namespace tandem::amx
