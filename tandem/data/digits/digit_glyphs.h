#pragma once

#include <array>
#include <vector>

// Shapes of the ten digits, which draw_digits() distorts.

namespace tandem::digits {

/// A point of a glyph or of a drawing. A glyph is in a box of 100 x 100 units; a
/// drawing uses pixels. The y axis points down.
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

/// Points through which a smooth curve passes; a repeated point is a corner.
using Stroke = std::vector<Point>;
/// Strokes of a digit. The pen is lifted between two strokes.
using Glyph = std::vector<Stroke>;

/// Glyphs of each digit, one for each style of handwriting.
using Alphabet = std::array<std::vector<Glyph>, 10>;

/// Returns the glyphs of all digits.
Alphabet make_alphabet();

}  // namespace tandem::digits
