#include "app/report/line_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "app/report/markup.h"

namespace tandem::app {

// Written by CMake from the file it is named after.
extern const std::string_view kChartCss;

namespace {

constexpr double kLeft = 56;
constexpr double kLineBottom = 46;
constexpr double kLineTop = 46;
constexpr double kNameGap = 17;
// Of a bold one.
constexpr double kLineLetterWidth = 7.8;
constexpr size_t kLongestLabel = 36;
constexpr double kPictureTop = 76;
constexpr double kPictureLine = 19;
constexpr size_t kPictureLetters = 150;

// The plot's edges, and the scales between them.
struct Plot {
  double left;
  double right;
  double top;
  double bottom;
  Scale x;
  Scale y;
};

std::string label_of(const Line& line) {
  return shortened(line.name, kLongestLabel - line.result.size()) +
         (line.result.empty() ? "" : "  " + line.result);
}

Plot plot_of(const LineChart& chart, const ChartSize& size) {
  size_t longest = chart.guide_words.size();
  for (const auto& line : chart.lines) {
    longest = std::max(longest, label_of(line).size());
  }
  const double names =
      size.has_names ? 26 + kLineLetterWidth * static_cast<double>(longest) : 16;
  Plot plot{kLeft, size.width - names, kLineTop, size.height - kLineBottom, {}, {}};
  plot.x = chart.x.between(plot.left, plot.right);
  plot.y = chart.y.between(plot.bottom, plot.top);
  return plot;
}

std::string text_at(
    double x, double y, const std::string& words, const char* anchor,
    const char* classes) {
  return fmt::format(
      "<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
      classes, x, y, anchor, html_text(words));
}

std::string titled(const std::string& title, const Scale& scale) {
  return title + (scale.is_logarithmic() ? " (logarithmic axis)" : "");
}

std::string axes(const LineChart& chart, const Plot& plot) {
  std::string svg = "<path class=\"grid\" d=\"";
  const auto ys = plot.y.ticks(6);
  for (const double tick : ys) {
    svg += fmt::format("M{:.1f} {:.1f}H{:.1f}", plot.left, plot.y(tick), plot.right);
  }
  svg += fmt::format(
      "\"/>\n<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}", plot.left, plot.bottom,
      plot.right);
  const auto xs = plot.x.ticks(static_cast<int>((plot.right - plot.left) / 70));
  for (const double tick : xs) {
    svg += fmt::format("M{:.1f} {:.1f}v5", plot.x(tick), plot.bottom);
  }
  svg += "\"/>\n";
  for (const double tick : ys) {
    svg += text_at(plot.left - 8, plot.y(tick) + 4, short_number(tick), "end", "soft");
  }
  for (const double tick : xs) {
    svg +=
        text_at(plot.x(tick), plot.bottom + 19, short_number(tick), "middle", "soft");
  }
  svg += text_at(8, 16, titled(chart.y_title, plot.y), "start", "soft y-title");
  svg += text_at(
      plot.right, plot.bottom + 38, titled(chart.x_title, plot.x), "end",
      "soft x-title");
  return svg;
}

bool has_place(const Plot& plot, const Point& point) {
  return plot.x.has_place(point.x) && plot.y.has_place(point.y);
}

// Points that can be drawn; of those in one column of pixels the first, the lowest,
// the highest and the last, which look the same as all.
std::vector<Point> drawn_points(const Plot& plot, const std::vector<Point>& points) {
  std::vector<Point> kept;
  std::vector<Point> column;
  const auto flush = [&] {
    if (column.empty()) {
      return;
    }
    const auto [low, high] = std::minmax_element(
        column.begin(), column.end(),
        [](const Point& a, const Point& b) { return a.y < b.y; });
    for (auto point = column.begin(); point != column.end(); ++point) {
      if (point == column.begin() || point == low || point == high ||
          point == column.end() - 1) {
        kept.push_back(*point);
      }
    }
    column.clear();
  };
  for (const auto& point : points) {
    if (!has_place(plot, point)) {
      continue;
    }
    if (!column.empty() &&
        std::floor(plot.x(column.front().x)) != std::floor(plot.x(point.x))) {
      flush();
    }
    column.push_back(point);
  }
  flush();
  return kept;
}

std::string path_through(const Plot& plot, const std::vector<Point>& points) {
  std::string path;
  for (const auto& point : points) {
    path += fmt::format(
        "{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plot.x(point.x), plot.y(point.y));
  }
  return path;
}

// A circle, a square and two triangles: those that see no colours see these.
std::string marker(size_t slot, double x, double y) {
  const char* const kShapes[] = {
      "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "m-3.6-3.6h7.2v7.2h-7.2z",
      "m0-5l4.8 8.4h-9.6z", "m0 5l4.8-8.4h-9.6z"};
  return fmt::format("M{:.1f} {:.1f}{}", x, y, kShapes[slot % std::size(kShapes)]);
}

std::string values_of(const LineChart& chart, const Point& point) {
  return short_number(point.x) + " " + chart.x_unit + ", " +
         fmt::format("{:.4g}", point.y) +
         (chart.y_unit.empty() ? "" : " " + chart.y_unit);
}

std::string dot(
    const char* classes, const std::string& path, const std::string& words) {
  return fmt::format(
      "<path class=\"{}\" d=\"{}\"><title>{}</title></path>\n", classes, path,
      html_text(words));
}

// Colours come again from the ninth on, with another dash.
std::string look_of(size_t slot) {
  return fmt::format("colour-{} dash-{}", slot % kMostLines, slot / kMostLines % 3);
}

std::string classes_of(const Line& line) {
  return fmt::format(
      "run run-{} {}{}{}", line.slot, look_of(line.slot),
      line.slot >= kMostLines ? " over" : "", line.wins ? " wins" : "");
}

std::string draw_document(
    const LineChart& chart, const Line& line, const Point& point, const Plot& plot) {
  const double x = plot.x(point.x);
  const double y = plot.y(point.y);
  return dot(
      "document", fmt::format("M{:.1f} {:.1f}m0-7l7 7l-7 7l-7-7z", x, y),
      line.name + ", its document: " + values_of(chart, point));
}

// Where a line has one diamond only, it has a name.
std::string name_document(const Line& line, const Plot& plot) {
  if (line.of_document.size() != 1 || !has_place(plot, line.of_document.front())) {
    return "";
  }
  const double x = plot.x(line.of_document.front().x);
  const bool left = x > (plot.left + plot.right) / 2;
  return text_at(
      x + (left ? -12 : 12), plot.y(line.of_document.front().y) + 4,
      "the document of " + shortened(line.name, kLongestLabel), left ? "end" : "start",
      "soft halo");
}

std::string draw_line(
    const LineChart& chart, const Line& line, const Plot& plot, bool has_names) {
  const auto points = drawn_points(plot, line.points);
  std::string svg = fmt::format(
      "<g class=\"{}{}\">\n", classes_of(line), chart.has_dots ? "" : " fine");
  for (const auto& range : line.ranges) {
    svg += fmt::format(
        "<path class=\"spread\" d=\"M{:.1f} {:.1f}V{:.1f}\"><title>{}: {} to {} {}"
        "</title></path>\n",
        plot.x(range.x), plot.y(range.least), plot.y(range.most), html_text(line.name),
        short_number(range.least), short_number(range.most), html_text(chart.y_unit));
  }
  if (points.size() > 1) {
    svg += fmt::format(
        "<path class=\"line\" d=\"{}\"><title>{}</title></path>\n",
        path_through(plot, points), html_text(line.name));
  }
  if (chart.has_dots) {
    for (const auto& point : points) {
      svg +=
          dot("dot", marker(line.slot, plot.x(point.x), plot.y(point.y)),
              line.name + ": " + values_of(chart, point));
    }
  }
  for (const auto& point : line.of_document) {
    svg += has_place(plot, point) ? draw_document(chart, line, point, plot) : "";
  }
  svg += has_names ? name_document(line, plot) : "";
  return svg + "</g>\n";
}

// Labels in the order of their lines' ends, each at its height or as near as the
// others let it. report.js does the same when others are shown.
std::map<size_t, double> label_heights(
    const std::vector<std::pair<double, size_t>>& ends, const Plot& plot) {
  auto sorted = ends;
  std::sort(sorted.begin(), sorted.end());
  const double gap = std::min(
      kNameGap, (plot.bottom - plot.top) / static_cast<double>(sorted.size() + 1));
  for (size_t i = 1; i < sorted.size(); ++i) {
    sorted[i].first = std::max(sorted[i].first, sorted[i - 1].first + gap);
  }
  double lowest = plot.bottom;
  for (auto end = sorted.rbegin(); end != sorted.rend(); ++end) {
    end->first = std::min(end->first, lowest);
    lowest = end->first - gap;
  }
  std::map<size_t, double> heights;
  for (const auto& [height, slot] : sorted) {
    heights[slot] = height;
  }
  return heights;
}

std::string draw_labels(const LineChart& chart, const Plot& plot) {
  std::vector<std::pair<double, size_t>> ends;
  std::map<size_t, Point> last;
  for (const auto& line : chart.lines) {
    const auto points = drawn_points(plot, line.points);
    if (points.empty()) {
      continue;
    }
    last[line.slot] = {plot.x(points.back().x), plot.y(points.back().y)};
    if (line.slot < kMostLines) {
      ends.emplace_back(last[line.slot].y, line.slot);
    }
  }
  const auto heights = label_heights(ends, plot);
  std::string svg = fmt::format(
      "<g class=\"labels\" data-top=\"{:.1f}\" data-bottom=\"{:.1f}\" "
      "data-gap=\"{:.0f}\">\n",
      plot.top, plot.bottom, kNameGap);
  for (const auto& line : chart.lines) {
    const auto end = last.find(line.slot);
    if (end == last.end()) {
      continue;
    }
    const auto found = heights.find(line.slot);
    const double height = found == heights.end() ? end->second.y : found->second;
    const double x = plot.right + 22;
    svg += fmt::format(
        "<g class=\"label {}\" data-x=\"{:.1f}\" data-y=\"{:.1f}\"><path "
        "class=\"leader\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text></g>\n",
        classes_of(line), end->second.x, end->second.y, end->second.x, end->second.y,
        x - 5, height, x, height + 4, html_text(label_of(line)));
  }
  return svg + "</g>\n";
}

std::string draw_target(const LineChart& chart, const Plot& plot) {
  if (!chart.target) {
    return "";
  }
  const double y = plot.y(chart.target->y);
  return fmt::format(
             "<path class=\"target\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", plot.left, y,
             plot.right) +
         text_at(plot.left + 6, y - 5, chart.target->words, "start", "soft halo");
}

// Its words are above the plot, where no line is; hidden with its line.
std::string draw_winner(const LineChart& chart, const Plot& plot) {
  if (!chart.winner || !has_place(plot, chart.winner->at)) {
    return "";
  }
  const double x = plot.x(chart.winner->at.x);
  const double y = plot.y(chart.winner->at.y);
  const double share = (x - plot.left) / (plot.right - plot.left);
  const char* const anchor = share < 0.3 ? "start" : share > 0.7 ? "end" : "middle";
  const auto line = std::find_if(
      chart.lines.begin(), chart.lines.end(), [](const Line& one) { return one.wins; });
  const std::string own =
      line == chart.lines.end() ? "" : fmt::format(" run-{}", line->slot);
  return fmt::format(
             "<g class=\"winner{4}\"><path class=\"drop\" d=\"M{0:.1f} "
             "{1:.1f}V{2:.1f}\"/>"
             "<circle cx=\"{0:.1f}\" cy=\"{3:.1f}\" r=\"9\"/>\n",
             x, plot.top - 6, y - 9, y, own) +
         text_at(x, plot.top - 11, "★ " + chart.winner->words, anchor, "words") +
         "</g>\n";
}

std::string draw_guide(
    const LineChart& chart, const Plot& plot, const ChartSize& size) {
  if (chart.guide.empty()) {
    return "";
  }
  const auto& end = chart.guide.back();
  std::string svg = fmt::format(
      "<path class=\"target\" d=\"{}\"/>\n", path_through(plot, chart.guide));
  const double x = plot.x(end.x);
  const double y = plot.y(end.y);
  return svg + (size.has_names
                    ? text_at(x + 6, y + 4, chart.guide_words, "start", "soft halo")
                    : text_at(x - 6, y + 14, chart.guide_words, "end", "soft halo"));
}

std::string draw_inside(const LineChart& chart, const ChartSize& size) {
  const Plot plot = plot_of(chart, size);
  std::string svg =
      axes(chart, plot) + draw_guide(chart, plot, size) + draw_target(chart, plot);
  // The winner's line lies above the others.
  for (const bool wins : {false, true}) {
    for (const auto& line : chart.lines) {
      svg += line.wins == wins ? draw_line(chart, line, plot, size.has_names) : "";
    }
  }
  return svg + (size.has_names ? draw_labels(chart, plot) : "") +
         draw_winner(chart, plot);
}

std::string opening(
    const LineChart& chart, const ChartSize& size, const std::string& more) {
  return fmt::format(
      "<svg{0} class=\"chart\" viewBox=\"0 0 {1} {2}\" role=\"img\" "
      "aria-labelledby=\"{3}-{1}-title {3}-{1}-desc\">\n<title "
      "id=\"{3}-{1}-title\">{4}</title>\n<desc id=\"{3}-{1}-desc\">{5}</desc>\n",
      more, size.width, size.height, chart.id, html_text(chart.title),
      html_text(chart.description));
}

std::vector<std::string> wrapped(const std::string& text, size_t most) {
  std::vector<std::string> lines = {""};
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > most) {
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    at = end + 1;
  }
  return lines;
}

}  // namespace

size_t count_points(const LineChart& chart, bool of_documents) {
  size_t count = 0;
  for (const auto& line : chart.lines) {
    const auto& points = of_documents ? line.of_document : line.points;
    count += static_cast<size_t>(
        std::count_if(points.begin(), points.end(), [&](const Point& point) {
          return chart.x.has_place(point.x) && chart.y.has_place(point.y);
        }));
  }
  return count;
}

std::string draw(const LineChart& chart, const ChartSize& size) {
  return opening(chart, size, "") + draw_inside(chart, size) + "</svg>\n";
}

std::string legend_swatch(size_t slot) {
  return fmt::format(
      "<svg class=\"chart {}\" viewBox=\"0 0 30 12\" width=\"30\" height=\"12\" "
      "aria-hidden=\"true\"><path class=\"line\" d=\"M1 6H29\"/><path class=\"dot\" "
      "d=\"{}\"/></svg>",
      look_of(slot), marker(slot, 15, 6));
}

std::string draw_picture(
    const LineChart& chart, const std::string& verdict,
    const std::vector<std::string>& notes) {
  LineChart shown = chart;
  shown.lines.erase(
      std::remove_if(
          shown.lines.begin(), shown.lines.end(),
          [](const Line& line) { return line.slot >= kMostLines; }),
      shown.lines.end());
  std::vector<std::string> lines;
  for (const auto& note : notes) {
    const auto more = wrapped(note, kPictureLetters);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  constexpr double kMargin = 24;
  const ChartSize size = kWideChart;
  const double below = kPictureTop + size.height + kPictureLine;
  const ChartSize whole = {
      size.width + static_cast<int>(2 * kMargin),
      static_cast<int>(below + kPictureLine * static_cast<double>(lines.size()) + 20),
      true};
  std::string svg =
      opening(
          chart, whole,
          fmt::format(
              " xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\"",
              whole.width, whole.height)) +
      fmt::format(
          "<style>\n{}</style>\n<rect class=\"card\" x=\"0.5\" y=\"0.5\" "
          "width=\"{}\" height=\"{}\" rx=\"10\"/>\n",
          kChartCss, whole.width - 1, whole.height - 1);
  svg += text_at(kMargin, 36, chart.title, "start", "title");
  svg += text_at(kMargin, 60, verdict, "start", "");
  svg += fmt::format(
      "<g transform=\"translate({:.0f} {:.0f})\">\n{}</g>\n", kMargin, kPictureTop,
      draw_inside(shown, size));
  for (size_t i = 0; i < lines.size(); ++i) {
    svg += text_at(
        kMargin, below + kPictureLine * static_cast<double>(i), lines[i], "start",
        "soft");
  }
  return svg + "</svg>\n";
}

}  // namespace tandem::app
