#include "tandem/data/digits/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <locale>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace tandem {

namespace {

// A point of a glyph or of a drawing. A glyph is in a box of 100 x 100 units; a
// drawing uses pixels. The y axis points down.
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

// Points through which a smooth curve passes; a repeated point is a corner.
using Stroke = std::vector<Point>;
// Strokes of a digit. The pen is lifted between two strokes.
using Glyph = std::vector<Stroke>;

// Glyphs of each digit, one for each style of handwriting.
using Alphabet = std::array<std::vector<Glyph>, 10>;

struct Style {
  int digit;
  // Points "x y" in a box of 100 x 100; the y axis points down. A smooth curve passes
  // through the points. A repeated point is a corner, and a slash lifts the pen.
  const char* path;
};

// Shapes of the ten digits, which draw_digits() distorts.
const Style kStyles[] = {
    {0, "52 3, 22 22, 15 55, 30 90, 55 97, 80 75, 84 40, 68 10, 48 3"},
    {0, "60 6, 36 14, 20 50, 32 91, 55 92, 76 55, 72 16, 50 2, 40 10"},
    {0, "40 5, 16 40, 22 82, 50 97, 80 80, 82 35, 60 4, 34 14"},
    {1, "50 2, 50 50, 50 98"},
    {1, "32 22, 52 3, 52 3, 52 50, 52 98"},
    {1, "32 20, 52 3, 52 3, 52 50, 52 98 / 26 97, 78 97"},
    {2, "18 25, 42 3, 78 18, 70 50, 15 96, 15 96, 88 94"},
    {2, "15 28, 42 4, 76 18, 62 58, 24 95, 10 86, 28 78, 58 92, 90 90"},
    {2, "20 14, 55 4, 80 28, 52 64, 14 94, 14 94, 50 90, 86 96"},
    {3, "18 12, 52 2, 80 22, 45 46, 45 46, 84 68, 55 97, 14 86"},
    {3, "18 5, 80 5, 80 5, 42 42, 42 42, 82 62, 58 97, 15 88"},
    {3, "20 18, 50 3, 74 20, 62 42, 40 48, 66 52, 82 74, 52 98, 16 80"},
    {4, "28 3, 18 55, 18 55, 85 55 / 68 10, 62 98"},
    {4, "62 98, 62 3, 62 3, 12 65, 12 65, 90 64"},
    {4, "25 5, 20 45, 42 58, 72 46 / 76 5, 72 50, 68 98"},
    {5, "80 5, 28 5, 28 5, 22 45, 22 45, 60 40, 84 66, 58 96, 14 88"},
    {5, "30 6, 22 46, 22 46, 62 42, 82 68, 52 97, 15 86 / 28 6, 85 4"},
    {5, "82 8, 42 8, 28 34, 64 50, 78 76, 50 96, 16 88"},
    {6, "72 4, 32 35, 18 72, 45 97, 80 78, 62 54, 24 68"},
    {6, "58 3, 26 42, 24 86, 58 96, 78 70, 48 54, 24 76"},
    {6, "80 12, 50 4, 22 40, 24 84, 54 97, 78 74, 56 52, 26 64"},
    {7, "15 6, 85 6, 85 6, 62 48, 45 98"},
    {7, "15 6, 85 6, 85 6, 62 48, 45 98 / 36 52, 80 50"},
    {7, "14 22, 16 6, 16 6, 85 5, 85 5, 54 45, 48 98"},
    {8, "76 16, 48 2, 24 20, 50 46, 80 74, 50 98, 20 76, 50 46, 76 24, 66 6"},
    {8, "50 3, 26 24, 50 47, 74 24, 50 3 / 50 47, 20 73, 50 98, 80 73, 50 47"},
    {8, "60 4, 30 12, 36 40, 72 62, 70 92, 32 94, 26 66, 66 38, 72 12, 56 3"},
    {9, "76 22, 48 3, 20 26, 42 50, 74 30, 78 12, 78 12, 74 55, 70 98"},
    {9, "76 20, 45 4, 22 28, 45 50, 76 22, 76 60, 52 96, 22 88"},
    {9, "74 12, 40 5, 24 36, 52 48, 76 14, 76 14, 62 60, 48 98"},
};

Glyph parse_path(const char* path) {
  std::istringstream text(path);
  text.imbue(std::locale::classic());
  Glyph glyph(1);
  Point point{};
  char separator = 0;
  while (text >> point.x >> point.y) {
    glyph.back().push_back(point);
    if (text >> separator && separator == '/') {
      glyph.emplace_back();
    }
  }
  return glyph;
}

// Returns the glyphs of all digits.
Alphabet make_alphabet() {
  Alphabet alphabet;
  for (const Style& style : kStyles) {
    alphabet.at(static_cast<size_t>(style.digit)).push_back(parse_path(style.path));
  }
  return alphabet;
}

constexpr int kGlyphSide = static_cast<int>(kDigitSide);
constexpr int kPixels = kGlyphSide * kGlyphSide;

// Ranges of the random distortions, calibrated with 60,000 training and 10,000 test
// images. The final accuracy of simplenet is 86 % (it must stay below 92 %), and net
// has 98.8 % after its first epoch (it must reach 97 %). Shift, rotation and slant
// reduce the accuracy of the linear simplenet most; jitter and warp reduce the accuracy
// of both models. A tenth of a pixel of shift changes simplenet's accuracy by about two
// percentage points.
constexpr double kMaxShift = 1.7;       // pixels, each way
constexpr double kMaxRotation = 0.52;   // radians, bell-shaped
constexpr double kMaxSlant = 0.56;      // sideways per height, bell-shaped
constexpr double kMaxJitter = 14;       // hundredths of a box, bell-shaped
constexpr double kMaxWarp = 3;          // pixels, bell-shaped
constexpr double kMinHeight = 17;       // pixels
constexpr double kMaxHeight = 21.5;     // pixels
constexpr double kMinAspect = 0.6;      // width over height
constexpr double kMaxAspect = 0.95;     // width over height
constexpr double kMinPenRadius = 0.85;  // pixels
constexpr double kMaxPenRadius = 1.95;  // pixels
constexpr double kMinInk = 0.85;        // share of full black
constexpr double kGrain = 0.15;         // ink that a pixel may lack
constexpr double kMinEdge = 0.9;        // pixels from ink to paper
constexpr double kMaxEdge = 1.7;        // pixels from ink to paper
constexpr double kStrayChance = 0.15;   // per image
constexpr double kStrayReach = 5;       // pixels

// Random numbers that lead to the same images on every machine. So this file uses no
// std distributions, which differ between libraries, and no sin or cos. It computes in
// double until the last step, so that a contracted multiply-add changes no byte.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t next() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t below(uint64_t n) {
    return (next() >> 32) * n >> 32;
  }

  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
  }

  // Returns a number from a bell-shaped distribution around 0, within +-limit, with a
  // standard deviation of limit / 3.
  double bell(double limit) {
    double sum = uniform(-limit, limit);
    sum += uniform(-limit, limit);
    sum += uniform(-limit, limit);
    return sum / 3;
  }

  bool chance(double p) {
    return uniform(0, 1) < p;
  }

 private:
  uint64_t state_;
};

Rng rng_for(uint64_t seed, uint64_t purpose, uint64_t index) {
  const uint64_t key = Rng(seed).next() ^ purpose;
  return Rng(Rng(Rng(key).next() + index).next());
}

// Handwriting of one image: maps points of a glyph to the drawing. An affine map is
// followed by a smooth warp, whose displacements are given on a coarse lattice.
class Hand {
 public:
  explicit Hand(Rng& rng) {
    const double height = rng.uniform(kMinHeight, kMaxHeight);
    const double width = height * rng.uniform(kMinAspect, kMaxAspect);
    const double slant = rng.bell(kMaxSlant);
    const double half = rng.bell(kMaxRotation) / 2;  // tan of half the angle
    const double cosine = (1 - half * half) / (1 + half * half);
    const double sine = 2 * half / (1 + half * half);
    const Point across = {width / 100, 0};
    const Point down = {-slant * height / 100, height / 100};
    across_ = {cosine * across.x, sine * across.x};
    down_ = {cosine * down.x - sine * down.y, sine * down.x + cosine * down.y};
    centre_ = {
        kGlyphSide / 2.0 + rng.uniform(-kMaxShift, kMaxShift),
        kGlyphSide / 2.0 + rng.uniform(-kMaxShift, kMaxShift)};
    for (Point& knot : lattice_) {
      knot = {rng.bell(kMaxWarp), rng.bell(kMaxWarp)};
    }
  }

  Point place(Point glyph_point) const {
    const Point from_centre = glyph_point - Point{50, 50};
    const Point flat = centre_ + from_centre.x * across_ + from_centre.y * down_;
    return flat + warp_at(flat);
  }

 private:
  static constexpr int kKnots = 4;

  static double clamp_to_lattice(double pixels) {
    return std::clamp(pixels * (kKnots - 1) / kGlyphSide, 0.0, kKnots - 1.001);
  }

  static double smooth(double t) {
    return t * t * (3 - 2 * t);
  }

  Point warp_at(Point p) const {
    const double x = clamp_to_lattice(p.x);
    const double y = clamp_to_lattice(p.y);
    const int column = static_cast<int>(x);
    const int row = static_cast<int>(y);
    const double right = smooth(x - column);
    const double below = smooth(y - row);
    const Point* knot = &lattice_[static_cast<size_t>(row * kKnots + column)];
    const Point top = (1 - right) * knot[0] + right * knot[1];
    const Point bottom = (1 - right) * knot[kKnots] + right * knot[kKnots + 1];
    return (1 - below) * top + below * bottom;
  }

  Point across_;
  Point down_;
  Point centre_;
  std::array<Point, kKnots * kKnots> lattice_;
};

struct Dot {
  Point at;
  double radius;
};

class Canvas {
 public:
  // Draws a straight line from a to b with round ends. `edge` is the width in pixels
  // over which ink fades to paper.
  void draw(Dot a, Dot b, double ink, double edge) {
    const double reach = std::max(a.radius, b.radius) + edge / 2;
    const int left = pixel_at(std::min(a.at.x, b.at.x) - reach);
    const int right = pixel_at(std::max(a.at.x, b.at.x) + reach);
    const int top = pixel_at(std::min(a.at.y, b.at.y) - reach);
    const int bottom = pixel_at(std::max(a.at.y, b.at.y) + reach);
    const Point along = b.at - a.at;
    const double per_length2 =
        1 / std::max(along.x * along.x + along.y * along.y, 1e-9);
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const Point p = Point{x + 0.5, y + 0.5} - a.at;
        const double t =
            std::clamp((p.x * along.x + p.y * along.y) * per_length2, 0.0, 1.0);
        const Point off = p - t * along;
        const double distance = std::sqrt(off.x * off.x + off.y * off.y);
        const double radius = a.radius + t * (b.radius - a.radius);
        const double cover = std::clamp((radius - distance) / edge + 0.5, 0.0, 1.0);
        double& value = values_[static_cast<size_t>(y * kGlyphSide + x)];
        value = std::max(value, ink * cover);
      }
    }
  }

  void write(Rng& rng, uint8_t* pixels) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i] > 0) {
        const double value = values_[i] * (1 - kGrain * rng.uniform(0, 1));
        pixels[i] = static_cast<uint8_t>(255 * value + 0.5);
      }
    }
  }

 private:
  static int pixel_at(double coordinate) {
    return static_cast<int>(std::clamp(coordinate, 0.0, kGlyphSide - 1.0));
  }

  std::array<double, kPixels> values_{};
};

struct Pen {
  double radius;
  double ink;
  double edge;
};

// Returns the point on the Catmull-Rom curve at the fraction `t` of the way from b to
// c.
Point on_curve(Point a, Point b, Point c, Point d, double t) {
  const Point m0 = 0.5 * (c - a);
  const Point m1 = 0.5 * (d - b);
  const double t2 = t * t;
  const double t3 = t2 * t;
  return (2 * t3 - 3 * t2 + 1) * b + (t3 - 2 * t2 + t) * m0 + (3 * t2 - 2 * t3) * c +
         (t3 - t2) * m1;
}

// Returns a stroke with randomly moved points. The two equal points of a corner move
// together, so they remain a corner.
Stroke jittered(const Stroke& stroke, Rng& rng) {
  Stroke points;
  for (size_t i = 0; i < stroke.size(); ++i) {
    const Point move = {rng.bell(kMaxJitter), rng.bell(kMaxJitter)};
    const bool corner = i > 0 && stroke[i] == stroke[i - 1];
    points.push_back(corner ? points.back() : stroke[i] + move);
  }
  return points;
}

void draw_stroke(
    const Stroke& stroke, const Hand& hand, const Pen& pen, Rng& rng, Canvas& canvas) {
  constexpr int kSteps = 5;
  const Stroke points = jittered(stroke, rng);
  const auto dot = [&](Point p) {
    return Dot{hand.place(p), pen.radius * rng.uniform(0.85, 1.15)};
  };
  Dot last = dot(points.front());
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    if (points[i] == points[i + 1]) {
      continue;  // a corner
    }
    const Point before = points[i == 0 ? 0 : i - 1];
    const Point after = points[std::min(i + 2, points.size() - 1)];
    for (int step = 1; step <= kSteps; ++step) {
      const Dot here =
          dot(on_curve(before, points[i], points[i + 1], after, step / double{kSteps}));
      canvas.draw(last, here, pen.ink, pen.edge);
      last = here;
    }
  }
}

uint8_t label_of(uint64_t seed, int64_t image) {
  std::array<uint8_t, 10> digits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Rng rng = rng_for(seed, 1, static_cast<uint64_t>(image / 10));
  for (size_t i = digits.size() - 1; i > 0; --i) {
    std::swap(digits[i], digits[rng.below(i + 1)]);
  }
  return digits[static_cast<size_t>(image % 10)];
}

// Draws a short line from the left or right edge, like the end of a neighbor's stroke.
void draw_stray(const Pen& pen, Rng& rng, Canvas& canvas) {
  const double side = rng.chance(0.5) ? 0 : kGlyphSide;
  const double inward = side > 0 ? -1 : 1;
  const Point from = {side, rng.uniform(0, kGlyphSide)};
  const Point reach = {
      inward * rng.uniform(1, kStrayReach), rng.uniform(-kStrayReach, kStrayReach)};
  canvas.draw({from, pen.radius}, {from + reach, pen.radius}, pen.ink, pen.edge);
}

void draw_digit(const std::vector<Glyph>& styles, Rng& rng, uint8_t* pixels) {
  const Glyph& glyph = styles[rng.below(styles.size())];
  const Hand hand(rng);
  const Pen pen = {
      rng.uniform(kMinPenRadius, kMaxPenRadius), rng.uniform(kMinInk, 1),
      rng.uniform(kMinEdge, kMaxEdge)};
  Canvas canvas;
  if (rng.chance(kStrayChance)) {
    draw_stray(pen, rng, canvas);
  }
  for (const Stroke& stroke : glyph) {
    draw_stroke(stroke, hand, pen, rng, canvas);
  }
  canvas.write(rng, pixels);
}

}  // namespace

DigitImages draw_digits(int64_t count, uint64_t seed) {
  count = std::max<int64_t>(count, 0);
  DigitImages images;
  images.pixels.resize(static_cast<size_t>(count * kPixels));
  images.labels.resize(static_cast<size_t>(count));
  const Alphabet alphabet = make_alphabet();
  const auto draw_range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Rng rng = rng_for(seed, 2, static_cast<uint64_t>(i));
      const uint8_t label = label_of(seed, i);
      images.labels[static_cast<size_t>(i)] = label;
      draw_digit(
          alphabet[label], rng, &images.pixels[static_cast<size_t>(i * kPixels)]);
    }
  };
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t share = std::max<int64_t>(512, (count + cores - 1) / cores);
  std::vector<std::future<void>> others;
  for (int64_t begin = share; begin < count; begin += share) {
    others.push_back(std::async(
        std::launch::async, draw_range, begin, std::min(count, begin + share)));
  }
  draw_range(0, std::min(count, share));
  for (auto& other : others) {
    other.get();
  }
  return images;
}

}  // namespace tandem
