#include "app/report/scale.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace tandem::app {

namespace {

constexpr double kFlattened = 20;
// Ends closer than this share of a step are on it.
constexpr double kRounding = 1e-9;

// 1, 2 or 5 times a power of ten, such that at most `most` fit into the span.
double step_of(double span, int most) {
  const double raw = span / most;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1, 2, 5}) {
    if (factor * power >= raw * (1 - kRounding)) {
      return factor * power;
    }
  }
  return 10 * power;
}

// 1, 2 or 5 times a power of ten: the last that is not above, or the first not below.
double round_number(double value, bool up) {
  const double power = std::pow(10, std::floor(std::log10(value) + kRounding));
  if (up) {
    for (const double factor : {1, 2, 5}) {
      if (factor * power >= value * (1 - kRounding)) {
        return factor * power;
      }
    }
    return 10 * power;
  }
  double below = power;
  for (const double factor : {2, 5}) {
    below = factor * power <= value * (1 + kRounding) ? factor * power : below;
  }
  return below;
}

}  // namespace

Scale Scale::even(const std::vector<double>& values, bool from_zero) {
  Scale scale;
  if (values.empty()) {
    return scale;
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = from_zero ? std::min(0.0, *least) : *least;
  const double span = *most > low ? *most - low : std::max(1.0, std::abs(low) / 10);
  const double step = step_of(span, 6);
  scale.low_ = step * std::floor(low / step + kRounding);
  scale.high_ = step * std::ceil((low + span) / step - kRounding);
  return scale;
}

Scale Scale::whole(const std::vector<double>& counts) {
  Scale scale = even(counts, true);
  scale.whole_ = true;
  scale.high_ = std::ceil(scale.high_);
  return scale;
}

Scale Scale::logarithmic(const std::vector<double>& values) {
  Scale scale;
  scale.logarithmic_ = true;
  std::vector<double> above;
  std::copy_if(
      values.begin(), values.end(), std::back_inserter(above),
      [](double value) { return value > 0; });
  if (above.empty()) {
    scale.low_ = 1;
    scale.high_ = 10;
    return scale;
  }
  const auto [least, most] = std::minmax_element(above.begin(), above.end());
  scale.low_ = round_number(*least, false);
  scale.high_ = round_number(*most, true);
  if (scale.low_ >= scale.high_) {
    scale.high_ = 2 * scale.low_;
  }
  return scale;
}

Scale Scale::between(double start, double end) const {
  Scale scale = *this;
  scale.start_ = start;
  scale.end_ = end;
  return scale;
}

double Scale::transformed(double value) const {
  return logarithmic_ ? std::log(value) : value;
}

bool Scale::has_place(double value) const {
  return std::isfinite(value) && (!logarithmic_ || value > 0);
}

double Scale::operator()(double value) const {
  const double low = transformed(low_);
  const double inside = std::clamp(value, low_, high_);
  const double share = (transformed(inside) - low) / (transformed(high_) - low);
  return start_ + share * (end_ - start_);
}

std::vector<double> Scale::ticks(int most) const {
  std::vector<double> made;
  if (!logarithmic_) {
    const double step = std::max(step_of(high_ - low_, most), whole_ ? 1.0 : 0.0);
    const auto last = static_cast<int>(std::floor(high_ / step + kRounding));
    for (auto i = static_cast<int>(std::ceil(low_ / step - kRounding)); i <= last;
         ++i) {
      made.push_back(i * step);
    }
    return made;
  }
  const double decades = std::log10(high_ / low_);
  // Where three a decade are too many, one; where that is too many, every second.
  const bool only_powers = 3 * decades > most;
  const int stride =
      only_powers ? std::max(1, static_cast<int>(std::ceil(decades / most))) : 1;
  for (auto power = static_cast<int>(std::floor(std::log10(low_) + kRounding));
       std::pow(10, power) <= high_ * (1 + kRounding); power += stride) {
    for (const double factor : {1, 2, 5}) {
      const double tick = factor * std::pow(10, power);
      if ((factor == 1 || !only_powers) && tick >= low_ * (1 - kRounding) &&
          tick <= high_ * (1 + kRounding)) {
        made.push_back(tick);
      }
    }
  }
  return made;
}

bool want_logarithm(const std::vector<double>& ends) {
  std::vector<double> above;
  std::copy_if(ends.begin(), ends.end(), std::back_inserter(above), [](double value) {
    return value > 0;
  });
  if (above.empty()) {
    return false;
  }
  const auto [least, most] = std::minmax_element(above.begin(), above.end());
  return *most > kFlattened * *least;
}

std::string short_number(double value) {
  struct Unit {
    double from;
    double size;
    const char* letter;
  };
  // From where three digits would round up to it.
  constexpr Unit kUnits[] = {
      {9.995e8, 1e9, "G"}, {9.995e5, 1e6, "M"}, {9.9995e3, 1e3, "k"}};
  for (const auto& unit : kUnits) {
    if (std::abs(value) >= unit.from) {
      return fmt::format("{:.3g}{}", value / unit.size, unit.letter);
    }
  }
  return std::abs(value) >= 999.5 ? fmt::format("{:.0f}", value)
                                  : fmt::format("{:.3g}", value);
}

}  // namespace tandem::app
