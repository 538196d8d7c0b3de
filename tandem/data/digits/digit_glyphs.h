#pragma once

#include <array>
#include <vector>

// Shapes of the ten digits, from which draw_digits() starts.

namespace tandem::digits {

/// A point of a glyph, in a box of 100 x 100 with y down, or of a drawing, in pixels.
struct Point {
  double x;
  double y;

  bool operator==(Point p) const {
    return x == p.x && y == p.y;
  }
  Point operator+(Point p) const {
    return {x + p.x, y + p.y};
  }
  Point operator-(Point p) const {
    return {x - p.x, y - p.y};
  }
  friend Point operator*(double s, Point p) {
    return {s * p.x, s * p.y};
  }
};

/// Points of a smooth curve; a repeated point is a corner.
using Stroke = std::vector<Point>;
/// Strokes of a digit; the pen is lifted between them.
using Glyph = std::vector<Stroke>;

/// Styles of each digit.
using Alphabet = std::array<std::vector<Glyph>, 10>;

/// Returns the styles of all digits.
Alphabet make_alphabet();

}  // namespace tandem::digits
