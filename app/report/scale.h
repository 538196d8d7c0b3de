#pragma once

#include <string>
#include <vector>

namespace tandem::app {

/// From values to places on a picture, evenly or by their logarithm.
///
/// Both ends are round numbers, so that the outermost values lie between ticks.
class Scale {
 public:
  /// Covers all values, and zero where `from_zero`. No values: 0 to 1.
  static Scale even(const std::vector<double>& values, bool from_zero);
  /// Covers all values above zero; the others have no place.
  static Scale logarithmic(const std::vector<double>& values);

  /// From zero, for values that are counts: ticks are whole numbers.
  static Scale whole(const std::vector<double>& counts);

  /// The same scale between two places, in pixels.
  Scale between(double start, double end) const;

  /// Values outside are at the nearest end.
  double operator()(double value) const;
  bool has_place(double value) const;
  /// At most about `most`, ascending.
  std::vector<double> ticks(int most) const;
  bool is_logarithmic() const {
    return logarithmic_;
  }

 private:
  double transformed(double value) const;

  bool logarithmic_ = false;
  bool whole_ = false;
  double low_ = 0;
  double high_ = 1;
  double start_ = 0;
  double end_ = 1;
};

/// Whether on an even axis from zero the shortest of lines that end at these values
/// would be lost beside the longest: it is over 20 times as long.
bool want_logarithm(const std::vector<double>& ends);

/// Three digits: 0.035, 2.5, 600, 12.3k, 1.2M.
std::string short_number(double value);

}  // namespace tandem::app
