#include "tandem/data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tandem {

namespace {

constexpr int kBits = AxisWeights::kWeightBits;
constexpr int32_t kHalf = int32_t{1} << (kBits - 1);
// A weight is split into two parts that fit into 16 bits.
constexpr int kLowBits = 11;
// Rows have a multiple of this number of bytes.
constexpr size_t kStep = 8;

// Returns half of the pixels that a crop removes, rounded as Python's round().
int64_t crop_begin(int64_t removed) {
  const int64_t half = removed / 2;
  return half + (removed % 2) * (half % 2);
}

int64_t round_half_up(double value) {
  return static_cast<int64_t>(std::floor(value + 0.5));
}

uint8_t to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255));
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

#ifdef __SSE2__
// Sums of products with two source pixels at once: with the upper and with the lower
// bits of 22-bit weights, as products of 16-bit numbers. The sums have the same bits as
// with 32-bit products.
class PairSum {
 public:
  // Adds four products of pairs of 16-bit values and a pair of weights.
  void add(__m128i values, const AxisWeights::Pair& weights) {
    const auto load = [](const int16_t* from) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    };
    high_ = _mm_add_epi32(high_, _mm_madd_epi16(values, load(weights.high)));
    low_ = _mm_add_epi32(low_, _mm_madd_epi16(values, load(weights.low)));
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

void resize_rgb(const uint8_t* row, const AxisWeights& across, uint8_t* to) {
  const __m128i zero = _mm_setzero_si128();
  const AxisWeights::Pair* const pairs_begin = across.pairs.data();
  const AxisWeights::Window* const windows = across.windows.data();
  const size_t count = across.windows.size();
  for (size_t at = 0; at < count; ++at) {
    const auto window = windows[at];
    PairSum sum;
    const uint8_t* pixel = row + 3 * window.first;
    const auto* weights = pairs_begin + window.at / 2;
    for (int64_t i = 0; i < window.count; i += 2, pixel += 6) {
      const __m128i pairs = _mm_unpacklo_epi8(load_pixel(pixel), load_pixel(pixel + 3));
      sum.add(_mm_unpacklo_epi8(pairs, zero), *weights++);
    }
    const __m128i result = sum.rounded();
    const auto bytes = static_cast<uint32_t>(
        _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(result, result), zero)));
    to[0] = static_cast<uint8_t>(bytes);
    to[1] = static_cast<uint8_t>(bytes >> 8);
    to[2] = static_cast<uint8_t>(bytes >> 16);
    to += 3;
  }
}

// Returns the weighted sum of rows. Reads and writes multiples of kStep bytes.
void add_rows(
    const std::vector<const uint8_t*>& rows, const AxisWeights& down,
    const AxisWeights::Window& window, size_t size, uint8_t* to) {
  const __m128i zero = _mm_setzero_si128();
  const auto* weights = down.pairs.data() + window.at / 2;
  for (size_t at = 0; at < size; at += kStep) {
    PairSum first;
    PairSum second;
    for (size_t i = 0; i < rows.size(); i += 2) {
      const auto load = [at](const uint8_t* row) {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + at));
      };
      const __m128i pairs = _mm_unpacklo_epi8(load(rows[i]), load(rows[i + 1]));
      first.add(_mm_unpacklo_epi8(pairs, zero), weights[i / 2]);
      second.add(_mm_unpackhi_epi8(pairs, zero), weights[i / 2]);
    }
    const __m128i words = _mm_packs_epi32(first.rounded(), second.rounded());
    _mm_storel_epi64(
        reinterpret_cast<__m128i*>(to + at), _mm_packus_epi16(words, words));
  }
}
#else
void resize_rgb(const uint8_t* row, const AxisWeights& across, uint8_t* to) {
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

void add_rows(
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
#endif

}  // namespace

ResizePlan plan_resize(const ImageSize& image, const ImageSize& target) {
  ResizePlan plan;
  plan.size = target;
  // The side that needs the larger factor gets the target's length.
  if (target.height * image.width >= target.width * image.height) {
    plan.resized = {target.height, target.height * image.width / image.height};
  } else {
    plan.resized = {target.width * image.height / image.width, target.width};
  }
  plan.top = crop_begin(plan.resized.height - target.height);
  plan.left = crop_begin(plan.resized.width - target.width);
  return plan;
}

AxisWeights::AxisWeights(int64_t from, int64_t resized, int64_t begin, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(resized);
  const double support = std::max(scale, 1.0);
  std::vector<double> values;
  for (int64_t pixel = begin; pixel < begin + count; ++pixel) {
    const double center = (static_cast<double>(pixel) + 0.5) * scale;
    Window window;
    window.first = std::max<int64_t>(round_half_up(center - support), 0);
    window.count = std::min(round_half_up(center + support), from) - window.first;
    window.at = weights.size();
    values.clear();
    double sum = 0;
    for (int64_t i = 0; i < window.count; ++i) {
      const double distance =
          (static_cast<double>(i + window.first) - center + 0.5) * (1.0 / support);
      values.push_back(std::max(0.0, 1.0 - std::abs(distance)));
      sum += values.back();
    }
    for (double value : values) {
      value /= sum;
      weights.push_back(
          static_cast<int32_t>(round_half_up(value * (1 << kWeightBits))));
    }
    while (window.count > 1 && weights.back() == 0) {
      weights.pop_back();
      --window.count;
    }
    weights.resize(window.at + static_cast<size_t>((window.count + 1) / 2 * 2));
    longest = std::max(longest, window.count);
    windows.push_back(window);
  }
  for (size_t i = 0; i < weights.size(); i += 2) {
    Pair& pair = pairs.emplace_back();
    for (size_t at = 0; at < std::size(pair.high); ++at) {
      const int32_t weight = weights[i + at % 2];
      pair.high[at] = static_cast<int16_t>(weight >> kLowBits);
      pair.low[at] = static_cast<int16_t>(weight & ((1 << kLowBits) - 1));
    }
  }
}

RowResizer::RowResizer(
    const ImageSize& image, const ResizePlan& plan, int64_t channels, uint8_t* planes)
    : size_(plan.size),
      channels_(channels),
      planes_(planes),
      across_(image.width, plan.resized.width, plan.left, plan.size.width),
      down_(image.height, plan.resized.height, plan.top, plan.size.height),
      row_bytes_(
          (static_cast<size_t>(plan.size.width * channels) + kStep - 1) / kStep *
          kStep),
      buffer_(static_cast<size_t>(down_.longest) * row_bytes_),
      result_(row_bytes_) {}

uint8_t* RowResizer::buffered(int64_t row) {
  return buffer_.data() + static_cast<size_t>(row % down_.longest) * row_bytes_;
}

void RowResizer::add_row(const uint8_t* row) {
  const int64_t number = next_in_++;
  const auto& windows = down_.windows;
  if (next_out_ == size_.height ||
      number < windows[static_cast<size_t>(next_out_)].first) {
    return;
  }
  (channels_ == 1 ? resize_gray : resize_rgb)(row, across_, buffered(number));
  for (; next_out_ < size_.height; ++next_out_) {
    const auto& window = windows[static_cast<size_t>(next_out_)];
    if (window.first + window.count > number + 1) {
      return;
    }
    write_row(next_out_);
  }
}

void RowResizer::write_row(int64_t row) {
  const auto& window = down_.windows[static_cast<size_t>(row)];
  rows_.clear();
  for (int64_t i = 0; i < window.count; ++i) {
    rows_.push_back(buffered(window.first + i));
  }
  if (rows_.size() % 2 != 0) {
    // Repeats a row to make their number even. The weight of the repeated row is zero.
    rows_.push_back(rows_.back());
  }
  add_rows(rows_, down_, window, row_bytes_, result_.data());
  const int64_t plane = size_.height * size_.width;
  // Copies of members, because a byte that is written could belong to a member.
  const int64_t width = size_.width;
  const int64_t channels = channels_;
  for (int64_t channel = 0; channel < channels; ++channel) {
    uint8_t* const to = planes_ + channel * plane + row * width;
    const uint8_t* const from = result_.data() + channel;
    for (int64_t at = 0; at < width; ++at) {
      to[at] = from[at * channels];
    }
  }
}

}  // namespace tandem
