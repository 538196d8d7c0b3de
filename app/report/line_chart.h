#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/report/scale.h"

namespace tandem::app {

struct Point {
  double x = 0;
  double y = 0;
};

/// Of repeated runs, at the place x.
struct Range {
  double x = 0;
  double least = 0;
  double most = 0;
};

/// One line of a chart, and of its legend.
struct Line {
  std::string name;
  // What stands beside its name at its end, such as "99.13 %".
  std::string result;
  // Its place in the legend, from 0: colour, dash and marker follow from it, and the
  // box that shows it.
  size_t slot = 0;
  bool wins = false;
  std::vector<Point> points;
  std::vector<Range> ranges;
  // What the document measured of the same: drawn as diamonds.
  std::vector<Point> of_document;
};

/// A point with words above the plot.
struct Mark {
  Point at;
  std::string words;
};

/// A horizontal line with words.
struct Level {
  double y = 0;
  std::string words;
};

/// A line chart before it is drawn.
struct LineChart {
  // Of the figure; a word.
  std::string id;
  std::string title;
  // What it shows, in a sentence, for those who cannot see it.
  std::string description;
  std::string x_title;
  std::string y_title;
  std::string x_unit;
  std::string y_unit;
  Scale x;
  Scale y;
  std::vector<Line> lines;
  std::optional<Mark> winner;
  std::optional<Level> target;
  // A line to compare with, dashed and without a name in the legend.
  std::vector<Point> guide;
  std::string guide_words;
  // Whether each point is a dot with its values in a tooltip.
  bool has_dots = true;
};

/// So many lines are shown at once: as many as there are colours.
constexpr size_t kMostLines = 8;

/// In its own units, which a page scales.
struct ChartSize {
  int width;
  int height;
  // Whether lines have their names at their ends.
  bool has_names;
};
constexpr ChartSize kWideChart = {1040, 440, true};
constexpr ChartSize kSmallChart = {500, 330, false};

/// How many points a chart draws; of its lines, or of documents.
size_t count_points(const LineChart& chart, bool of_documents);

/// An <svg> element whose classes chart.css colours. Lines from the ninth on are there
/// too; chart.css hides them until a page's legend shows them.
std::string draw(const LineChart& chart, const ChartSize& size);

/// A line's piece and marker, for a legend.
std::string legend_swatch(size_t slot);

/// A chart with its title and these sentences above it and below it, as a file that
/// needs no other: the first eight lines, in light colours on a card of its own.
std::string draw_picture(
    const LineChart& chart, const std::string& verdict,
    const std::vector<std::string>& notes);

}  // namespace tandem::app
