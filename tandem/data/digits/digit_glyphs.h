#pragma once

#include <array>
#include <vector>

// How the ten digits are written, before any hand writes them: what draw_digits()
// begins with.

namespace tandem::digits {

/// Of a glyph: in a box of 100 x 100, y down. Of a drawing: in pixels.
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

/// Points that a smooth curve passes through; a repeated one is a corner.
using Stroke = std::vector<Point>;
/// The pen is lifted between strokes.
using Glyph = std::vector<Stroke>;

/// By digit: the styles that it may be written in.
using Alphabet = std::array<std::vector<Glyph>, 10>;

Alphabet make_alphabet();

}  // namespace tandem::digits
