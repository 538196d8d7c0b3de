#include "tandem/data/images/axis_weights.h"

#include <algorithm>
#include <cmath>

namespace tandem {

namespace {

int64_t round_half_up(double value) {
  return static_cast<int64_t>(std::floor(value + 0.5));
}

}  // namespace

AxisWeights::AxisWeights(int64_t from, int64_t resized, int64_t begin, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(resized);
  const double support = std::max(scale, 1.0);
  std::vector<double> values;
  windows.reserve(static_cast<size_t>(count));
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
    weights.resize((weights.size() + kStep - 1) / kStep * kStep);
    longest = std::max(longest, window.count);
    windows.push_back(window);
  }
  high.resize(kRepeats * weights.size());
  low.resize(kRepeats * weights.size());
  for (size_t i = 0; i < high.size(); ++i) {
    const int32_t weight = weights[i / (2 * kRepeats) * 2 + i % 2];
    high[i] = static_cast<int16_t>(weight >> kLowBits);
    low[i] = static_cast<int16_t>(weight & ((1 << kLowBits) - 1));
  }
}

}  // namespace tandem
