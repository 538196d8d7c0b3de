#include "tandem/data/images/resize_rows.h"

#include <algorithm>
#include <cstring>

#include "tandem/core/simd.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tandem {

namespace {

constexpr int kBits = AxisWeights::kWeightBits;
constexpr int32_t kHalf = int32_t{1} << (kBits - 1);

uint8_t to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

void across_base(const uint8_t* row, const AxisWeights& across, uint8_t* to) {
  for (const auto& window : across.windows) {
    int32_t sums[3] = {kHalf, kHalf, kHalf};
    for (int64_t i = 0; i < window.count; ++i) {
      const int32_t weight = across.weights[window.at + static_cast<size_t>(i)];
      const uint8_t* pixel = row + 3 * (window.first + i);
      for (int channel = 0; channel < 3; ++channel) {
        sums[channel] += pixel[channel] * weight;
      }
    }
    for (const int32_t sum : sums) {
      *to++ = to_byte(sum);
    }
  }
}

void down_base(
    const std::vector<const uint8_t*>& rows, const AxisWeights& down,
    const AxisWeights::Window& window, size_t size, uint8_t* to) {
  const int32_t* weights = down.weights.data() + window.at;
  for (size_t at = 0; at < size; ++at) {
    int32_t sum = kHalf;
    for (size_t i = 0; i < rows.size(); ++i) {
      sum += rows[i][at] * weights[i];
    }
    to[at] = to_byte(sum);
  }
}

#if defined(__SSE2__)

// The sums of products are computed with two source pixels at once, and separately with
// the upper and with the lower bits of 22-bit weights, as products of 16-bit numbers.
// They have the same bits as with 32-bit products.

constexpr int kLowBits = AxisWeights::kLowBits;
constexpr size_t kRepeats = AxisWeights::kRepeats;

TANDEM_ALWAYS_INLINE __m128i load_vector(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

class PairSum {
 public:
  // Adds four products of pairs of 16-bit values and a pair of weights.
  void add(__m128i values, const int16_t* high, const int16_t* low) {
    high_ = _mm_add_epi32(high_, _mm_madd_epi16(values, load_vector(high)));
    low_ = _mm_add_epi32(low_, _mm_madd_epi16(values, load_vector(low)));
  }
  // Returns the four sums, rounded to integers.
  __m128i rounded() const {
    return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(high_, kLowBits), low_), kBits);
  }

 private:
  __m128i high_ = _mm_setzero_si128();
  __m128i low_ = _mm_set1_epi32(kHalf);
};

// Returns the 4 bytes at `from` in the low part of a register.
__m128i load_pixel(const uint8_t* from) {
  int32_t pixel = 0;
  std::memcpy(&pixel, from, sizeof(pixel));
  return _mm_cvtsi32_si128(pixel);
}

// Writes the lower bytes of three 32-bit numbers, and an arbitrary byte.
TANDEM_ALWAYS_INLINE void store_pixel(__m128i sums, uint8_t* to) {
  const __m128i words = _mm_packs_epi32(sums, sums);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(to, &bytes, sizeof(bytes));
}

void across_sse2(const uint8_t* row, const AxisWeights& across, uint8_t* to) {
  const __m128i zero = _mm_setzero_si128();
  for (const auto& window : across.windows) {
    PairSum sum;
    const uint8_t* pixel = row + 3 * window.first;
    const int16_t* high = across.high.data() + kRepeats * window.at;
    const int16_t* low = across.low.data() + kRepeats * window.at;
    for (int64_t i = 0; i < window.count; i += 2) {
      const __m128i pairs = _mm_unpacklo_epi8(load_pixel(pixel), load_pixel(pixel + 3));
      sum.add(_mm_unpacklo_epi8(pairs, zero), high, low);
      pixel += 6;
      high += 2 * kRepeats;
      low += 2 * kRepeats;
    }
    store_pixel(sum.rounded(), to);
    to += 3;
  }
}

void down_sse2(
    const std::vector<const uint8_t*>& rows, const AxisWeights& down,
    const AxisWeights::Window& window, size_t size, uint8_t* to) {
  const __m128i zero = _mm_setzero_si128();
  const int16_t* high = down.high.data() + kRepeats * window.at;
  const int16_t* low = down.low.data() + kRepeats * window.at;
  constexpr size_t kBlock = 8;
  for (size_t at = 0; at < size; at += kBlock) {
    PairSum first;
    PairSum second;
    for (size_t i = 0; i < rows.size(); i += 2) {
      const auto load = [at](const uint8_t* row) {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + at));
      };
      const __m128i pairs = _mm_unpacklo_epi8(load(rows[i]), load(rows[i + 1]));
      first.add(
          _mm_unpacklo_epi8(pairs, zero), high + kRepeats * i, low + kRepeats * i);
      second.add(
          _mm_unpackhi_epi8(pairs, zero), high + kRepeats * i, low + kRepeats * i);
    }
    const __m128i words = _mm_packs_epi32(first.rounded(), second.rounded());
    _mm_storel_epi64(
        reinterpret_cast<__m128i*>(to + at), _mm_packus_epi16(words, words));
  }
}

#endif
#if defined(TANDEM_HAS_SIMD)

__attribute__((target("avx2"))) TANDEM_ALWAYS_INLINE __m256i
add_products(__m256i sums, __m256i values, __m256i weights) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(values, weights));
}

// Computes two pairs of source pixels at once, one in each half of a register.
__attribute__((target("avx2"))) void across_avx2(
    const uint8_t* row, const AxisWeights& across, uint8_t* to) {
  // Positions of the pairs' bytes in 16-bit values, by channel; -1 gives zero.
  const __m256i order = _mm256_setr_epi8(
      0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
      6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i half =
      _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi32(kHalf), 0);
  for (const auto& window : across.windows) {
    __m256i high_sum = _mm256_setzero_si256();
    __m256i low_sum = half;
    const uint8_t* pixel = row + 3 * window.first;
    const int16_t* high = across.high.data() + kRepeats * window.at;
    const int16_t* low = across.low.data() + kRepeats * window.at;
    for (int64_t i = 0; i < window.count; i += 4) {
      const __m256i pairs =
          _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_vector(pixel)), order);
      high_sum = add_products(
          high_sum, pairs, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
      low_sum = add_products(
          low_sum, pairs, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
      pixel += 12;
      high += 4 * kRepeats;
      low += 4 * kRepeats;
    }
    const __m256i sum =
        _mm256_add_epi32(_mm256_slli_epi32(high_sum, kLowBits), low_sum);
    const __m128i both =
        _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    store_pixel(_mm_srai_epi32(both, kBits), to);
    to += 3;
  }
}

__attribute__((target("avx2"))) void down_avx2(
    const std::vector<const uint8_t*>& rows, const AxisWeights& down,
    const AxisWeights::Window& window, size_t size, uint8_t* to) {
  const int16_t* high = down.high.data() + kRepeats * window.at;
  const int16_t* low = down.low.data() + kRepeats * window.at;
  const size_t count = rows.size();
  constexpr size_t kBlock = 16;
  static_assert(kBlock == RowFunctions::kRowStep);
  for (size_t at = 0; at < size; at += kBlock) {
    // Each array has the sums for the first 8 bytes, then those for the last 8 bytes.
    __m256i high_sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i low_sums[2] = {_mm256_set1_epi32(kHalf), _mm256_set1_epi32(kHalf)};
    for (size_t i = 0; i < count; i += 2) {
      const __m128i a = load_vector(rows[i] + at);
      const __m128i b = load_vector(rows[i + 1] + at);
      const __m256i pairs[2] = {
          _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
          _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b))};
      const __m256i high_pair =
          _mm256_broadcastsi128_si256(load_vector(high + kRepeats * i));
      const __m256i low_pair =
          _mm256_broadcastsi128_si256(load_vector(low + kRepeats * i));
      for (int part = 0; part < 2; ++part) {
        high_sums[part] = add_products(high_sums[part], pairs[part], high_pair);
        low_sums[part] = add_products(low_sums[part], pairs[part], low_pair);
      }
    }
    __m256i sums[2];
    for (int part = 0; part < 2; ++part) {
      sums[part] = _mm256_srai_epi32(
          _mm256_add_epi32(
              _mm256_slli_epi32(high_sums[part], kLowBits), low_sums[part]),
          kBits);
    }
    // Packing works on the halves of registers, and changes the order of four bytes.
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(sums[0], sums[1]), _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i bytes = _mm_packus_epi16(
        _mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), bytes);
  }
}

#endif

}  // namespace

std::vector<RowFunctions> row_functions() {
  std::vector<RowFunctions> found;
#if defined(TANDEM_HAS_SIMD)
  if (__builtin_cpu_supports("avx2")) {
    found.push_back({&across_avx2, &down_avx2});
  }
#endif
#if defined(__SSE2__)
  found.push_back({&across_sse2, &down_sse2});
#endif
  found.push_back({&across_base, &down_base});
  return found;
}

void resize_gray(const uint8_t* row, const AxisWeights& across, uint8_t* to) {
  for (const auto& window : across.windows) {
    int32_t sum = kHalf;
    for (int64_t i = 0; i < window.count; ++i) {
      sum += row[window.first + i] * across.weights[window.at + static_cast<size_t>(i)];
    }
    *to++ = to_byte(sum);
  }
}

TANDEM_SIMD_CLONES void split_rgb(
    const uint8_t* __restrict row, int64_t width, uint8_t* __restrict red,
    uint8_t* __restrict green, uint8_t* __restrict blue) {
  for (int64_t i = 0; i < width; ++i) {
    red[i] = row[3 * i];
    green[i] = row[3 * i + 1];
    blue[i] = row[3 * i + 2];
  }
}

}  // namespace tandem
