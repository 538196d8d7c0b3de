#include "tandem/exec/compiled/pointwise_kernels.h"

#include <algorithm>
#include <cstring>

#include "tandem/core/parallel.h"
#include "tandem/core/simd.h"

namespace tandem {

namespace {

// Smallest number of elements per thread: 128 KiB of float32.
constexpr int64_t kGrain = 32'768;

template <typename T>
TANDEM_ALWAYS_INLINE void rectify_each(const T* in, int64_t count, T* out) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    const float value = widen(in[i]);
    // NaN remains NaN.
    out[i] = value <= 0 ? T{} : in[i];
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void mask_each(const T* output, int64_t count, T* grad) {
  for (int64_t i = 0; i < count; ++i) {
    grad[i] = widen(output[i]) <= 0 ? T{} : grad[i];
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void drop_each(
    const uint8_t* keep, float factor, int64_t count, const T* in, T* out) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    // Multiplies, because a conditional would become a branch that the CPU mispredicts.
    out[i] = narrow<T>(widen(in[i]) * (factor * static_cast<float>(keep[i])));
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void scale_each(float factor, int64_t count, const T* in, T* out) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    out[i] = narrow<T>(factor * widen(in[i]));
  }
}

#define TANDEM_POINTWISE(T)                                                    \
  TANDEM_SIMD_CLONES void rectify_part(const T* in, int64_t count, T* out) {   \
    rectify_each(in, count, out);                                              \
  }                                                                            \
  TANDEM_SIMD_CLONES void mask_part(const T* output, int64_t count, T* grad) { \
    mask_each(output, count, grad);                                            \
  }                                                                            \
  TANDEM_SIMD_CLONES void drop_part(                                           \
      const uint8_t* keep, float factor, int64_t count, const T* in, T* out) { \
    drop_each(keep, factor, count, in, out);                                   \
  }                                                                            \
  TANDEM_SIMD_CLONES void scale_part(                                          \
      float factor, int64_t count, const T* in, T* out) {                      \
    scale_each(factor, count, in, out);                                        \
  }
TANDEM_POINTWISE(float)
TANDEM_POINTWISE(Bf16)
#undef TANDEM_POINTWISE

TANDEM_SIMD_CLONES void add_part(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] += from[i];
  }
}

TANDEM_SIMD_CLONES void round_part(int64_t count, float* values) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    values[i] = widen(narrow<Bf16>(values[i]));
  }
}

// Rounds to the nearest float16 value. Float32 has 1 sign bit, 8 exponent bits and 23
// mantissa bits, of which float16 keeps 10.
TANDEM_ALWAYS_INLINE float to_fp16(float value) {
  constexpr uint32_t kSign = 0x8000'0000;
  constexpr uint32_t kInfinity = 0x7F80'0000;
  constexpr uint32_t kTwoToThe16 = 0x4780'0000;
  constexpr uint32_t kTwoToTheMinus14 = 0x3880'0000;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t size = bits & ~kSign;
  const uint32_t cut = (size + 0xFFF + ((size >> 13) & 1)) & ~0x1FFFU;
  const uint32_t normal = size > kInfinity     ? size
                          : cut >= kTwoToThe16 ? kInfinity
                                               : cut;
  // Below 2^-14, the distance of neighboring float16 values is 2^-24, like that of
  // float32 values between 0.5 and 1.
  float small;
  std::memcpy(&small, &size, sizeof(small));
  small = (small + 0.5F) - 0.5F;
  uint32_t small_bits;
  std::memcpy(&small_bits, &small, sizeof(small_bits));
  const uint32_t rounded =
      (size < kTwoToTheMinus14 ? small_bits : normal) | (bits & kSign);
  std::memcpy(&value, &rounded, sizeof(value));
  return value;
}

TANDEM_SIMD_CLONES void round_half_part(int64_t count, float* values) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    values[i] = to_fp16(values[i]);
  }
}

template <typename Part>
void in_parts(int64_t count, const Part& part) {
  parallel_for(
      0, count, kGrain, [&](int64_t begin, int64_t end) { part(begin, end - begin); });
}

}  // namespace

void add_rows(
    const float* rows, int64_t count, int64_t width, bool accumulate, float* sum) {
  if (!accumulate) {
    std::fill_n(sum, width, 0.0F);
  }
  for (int64_t i = 0; i < count; ++i) {
    add_part(rows + i * width, width, sum);
  }
}

void store_gradient(const float* from, int64_t count, bool accumulate, float* to) {
  if (accumulate) {
    add_part(from, count, to);
  } else {
    std::copy_n(from, count, to);
  }
}

void round_to_bf16(int64_t count, float* values) {
  in_parts(count, [&](int64_t at, int64_t n) { round_part(n, values + at); });
}

void round_to_fp16(int64_t count, float* values) {
  in_parts(count, [&](int64_t at, int64_t n) { round_half_part(n, values + at); });
}

template <typename T>
void rectify(const T* in, int64_t count, T* out) {
  in_parts(count, [&](int64_t at, int64_t n) { rectify_part(in + at, n, out + at); });
}

template <typename T>
void rectify_gradient(const T* output, int64_t count, T* grad) {
  in_parts(count, [&](int64_t at, int64_t n) { mask_part(output + at, n, grad + at); });
}

template <typename T>
void apply_dropout(
    const uint8_t* keep, int64_t run, float factor, int64_t count, const T* in,
    T* out) {
  if (run == 1) {
    in_parts(count, [&](int64_t at, int64_t n) {
      drop_part(keep + at, factor, n, in + at, out + at);
    });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / run);
  parallel_for_each(count / run, grain, [&](int64_t i) {
    scale_part(keep[i] != 0 ? factor : 0, run, in + i * run, out + i * run);
  });
}

template void rectify(const float*, int64_t, float*);
template void rectify(const Bf16*, int64_t, Bf16*);
template void rectify_gradient(const float*, int64_t, float*);
template void rectify_gradient(const Bf16*, int64_t, Bf16*);
template void apply_dropout(
    const uint8_t*, int64_t, float, int64_t, const float*, float*);
template void apply_dropout(
    const uint8_t*, int64_t, float, int64_t, const Bf16*, Bf16*);

}  // namespace tandem
