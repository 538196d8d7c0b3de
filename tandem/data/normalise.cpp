#include "tandem/data/normalise.h"

#include <cstring>

#include "tandem/core/simd.h"

#if defined(TANDEM_HAS_SIMD)
#include <immintrin.h>
#endif

namespace tandem {

namespace {

using Factors = Normaliser::Factors;

#if defined(TANDEM_HAS_SIMD)

// The two divide() functions compute a quotient without a division, from an estimate
// and its remainder. A fused multiply-add gives the exact remainder (P. Markstein,
// 1990). For nearly all divisors, the result is the correctly rounded quotient.
// Normaliser's constructor checks the results. The last block of a row overlaps the
// previous block, because computing some values twice is faster than computing single
// values.

__attribute__((target("avx512f"))) TANDEM_ALWAYS_INLINE __m512
divide(__m512 value, __m512 divisor, __m512 inverse) {
  const __m512 estimate = _mm512_mul_ps(value, inverse);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(estimate, divisor, value), inverse, estimate);
}

__attribute__((target("avx512f"))) void row_avx512(
    const uint8_t* from, int64_t count, const Factors& factors, float* to) {
  constexpr int64_t kBlock = 16;
  // GCC 12 warns that the functions without a mask use an uninitialized value.
  constexpr __mmask16 kAll = 0xffff;
  const __m512 white = _mm512_set1_ps(255);
  const __m512 inverse_white = _mm512_set1_ps(factors.inverse_255);
  const __m512 mean = _mm512_set1_ps(factors.mean);
  const __m512 std = _mm512_set1_ps(factors.std);
  const __m512 inverse_std = _mm512_set1_ps(factors.inverse_std);
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t at = block + kBlock <= count ? block : count - kBlock;
    const auto bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    const __m512 pixels =
        _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepu8_epi32(kAll, bytes));
    const __m512 share = divide(pixels, white, inverse_white);
    _mm512_storeu_ps(to + at, divide(_mm512_sub_ps(share, mean), std, inverse_std));
  }
}

__attribute__((target("avx2,fma"))) TANDEM_ALWAYS_INLINE __m256
divide(__m256 value, __m256 divisor, __m256 inverse) {
  const __m256 estimate = _mm256_mul_ps(value, inverse);
  return _mm256_fmadd_ps(_mm256_fnmadd_ps(estimate, divisor, value), inverse, estimate);
}

__attribute__((target("avx2,fma"))) void row_avx2(
    const uint8_t* from, int64_t count, const Factors& factors, float* to) {
  constexpr int64_t kBlock = 8;
  const __m256 white = _mm256_set1_ps(255);
  const __m256 inverse_white = _mm256_set1_ps(factors.inverse_255);
  const __m256 mean = _mm256_set1_ps(factors.mean);
  const __m256 std = _mm256_set1_ps(factors.std);
  const __m256 inverse_std = _mm256_set1_ps(factors.inverse_std);
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t at = block + kBlock <= count ? block : count - kBlock;
    const auto bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + at));
    const __m256 pixels = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 share = divide(pixels, white, inverse_white);
    _mm256_storeu_ps(to + at, divide(_mm256_sub_ps(share, mean), std, inverse_std));
  }
}

#endif

// Returns whether the results of `row` equal the table bit by bit for every value of a
// pixel.
bool is_exact(
    Normaliser::RowFunction row, const Factors& factors,
    const std::array<float, 256>& table) {
  std::array<uint8_t, 256> pixels{};
  std::array<float, 256> values{};
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(i);
  }
  row(pixels.data(), static_cast<int64_t>(pixels.size()), factors, values.data());
  return std::memcmp(values.data(), table.data(), sizeof(values)) == 0;
}

}  // namespace

std::vector<Normaliser::RowFunction> Normaliser::row_functions() {
  std::vector<RowFunction> found;
#if defined(TANDEM_HAS_SIMD)
  if (__builtin_cpu_supports("avx512f")) {
    found.push_back(&row_avx512);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back(&row_avx2);
  }
#endif
  return found;
}

Normaliser::RowFunction Normaliser::fastest_function() {
  const auto functions = row_functions();
  return functions.empty() ? nullptr : functions.front();
}

Normaliser::Normaliser(double mean, double std, RowFunction function) {
  const auto mean_value = static_cast<float>(mean);
  const auto std_value = static_cast<float>(std);
  for (size_t pixel = 0; pixel < table_.size(); ++pixel) {
    table_[pixel] = (static_cast<float>(pixel) / 255.0f - mean_value) / std_value;
  }
  factors_ = {1 / 255.0f, mean_value, std_value, 1 / std_value};
  if (function != nullptr && is_exact(function, factors_, table_)) {
    row_ = function;
  }
}

void Normaliser::row(const uint8_t* from, int64_t count, float* to) const {
  if (row_ != nullptr && count >= kShortest) {
    row_(from, count, factors_, to);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i] = table_[from[i]];
  }
}

}  // namespace tandem
