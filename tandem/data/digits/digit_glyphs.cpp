#include "tandem/data/digits/digit_glyphs.h"

#include <string_view>

namespace tandem::digits {

namespace {

struct Style {
  int digit;
  // Points "x y" in a box of 100 x 100; the y axis points down. A smooth curve passes
  // through the points. A repeated point is a corner, and a slash lifts the pen.
  std::string_view path;
};

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

Glyph parse_path(std::string_view path) {
  Glyph glyph(1);
  std::vector<double> numbers;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '/') {
      glyph.emplace_back();
    } else if (path[i] >= '0' && path[i] <= '9') {
      double value = path[i] - '0';
      while (i + 1 < path.size() && path[i + 1] >= '0' && path[i + 1] <= '9') {
        value = value * 10 + (path[++i] - '0');
      }
      numbers.push_back(value);
    }
    if (numbers.size() == 2) {
      glyph.back().push_back({numbers[0], numbers[1]});
      numbers.clear();
    }
  }
  return glyph;
}

}  // namespace

Alphabet make_alphabet() {
  Alphabet alphabet;
  for (const Style& style : kStyles) {
    alphabet.at(static_cast<size_t>(style.digit)).push_back(parse_path(style.path));
  }
  return alphabet;
}

}  // namespace tandem::digits
