#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::app {

/// Quantiles of measured values.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

/// Returns quantiles with linear interpolation, as numpy does. `values` must not be
/// empty.
inline Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    const double place = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    const double share = place - std::floor(place);
    return values[below] * (1 - share) + values[above] * share;
  };
  return {quantile(0.5), quantile(0.1), quantile(0.9)};
}

}  // namespace tandem::app
