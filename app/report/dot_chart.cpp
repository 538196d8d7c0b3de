#include "app/report/dot_chart.h"

#include <fmt/core.h>

#include <algorithm>

#include "app/report/line_chart.h"
#include "app/report/markup.h"

namespace tandem::app {

namespace {

constexpr double kWidth = 500;
constexpr double kRow = 24;
constexpr double kDotTop = 8;
constexpr double kDotBottom = 40;
constexpr double kDotLetterWidth = 7.2;
constexpr double kValueWidth = 62;
constexpr size_t kLongestName = 26;

std::vector<double> values_of(const DotChart& chart) {
  std::vector<double> values;
  for (const auto& row : chart.rows) {
    values.push_back(row.value);
    for (const auto& more : {row.least, row.most, row.document}) {
      if (more) {
        values.push_back(*more);
      }
    }
  }
  return values;
}

Scale scale_of(const DotChart& chart) {
  const auto values = values_of(chart);
  const bool above_zero =
      std::all_of(values.begin(), values.end(), [](double value) { return value > 0; });
  return above_zero && want_logarithm(values) ? Scale::logarithmic(values)
                                              : Scale::even(values, true);
}

std::string draw_axis(const Scale& x, double left, double bottom) {
  std::string svg;
  for (const double tick : x.ticks(5)) {
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1}V{2:.1f}\"/><text class=\"soft\" "
        "x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        x(tick), kDotTop, bottom, bottom + 17, short_number(tick));
  }
  if (x.is_logarithmic()) {
    svg += fmt::format(
        "<text class=\"soft x-title\" x=\"{:.1f}\" y=\"{:.1f}\">logarithmic "
        "axis</text>\n",
        left, bottom + 34);
  }
  return svg;
}

std::string draw_row(
    const DotRow& row, const std::string& unit, const Scale& x, double left, double y) {
  const std::string value = short_number(row.value);
  std::string svg = fmt::format(
      "<g class=\"row {}{}\"><text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" "
      "text-anchor=\"end\">{}</text>",
      row.slot ? fmt::format("colour-{}", *row.slot % kMostLines) : "plain",
      row.wins ? " wins" : "", row.wins ? "wins-text" : "", left - 12, y + 4,
      html_text(shortened(row.name, kLongestName)));
  // A length from an end that is not zero would mean nothing.
  if (!x.is_logarithmic()) {
    svg += fmt::format(
        "<path class=\"stem\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", x(0), y, x(row.value));
  }
  if (row.least && row.most) {
    svg += fmt::format(
        "<path class=\"spread\" d=\"M{:.1f} {:.1f}H{:.1f}\"><title>{} to {}</title>"
        "</path>",
        x(*row.least), y, x(*row.most), short_number(*row.least),
        short_number(*row.most));
  }
  svg += fmt::format(
      "<path class=\"dot\" d=\"M{:.1f} {:.1f}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z\">"
      "<title>{}: {} {}</title></path>",
      x(row.value), y, html_text(row.name), value, html_text(unit));
  if (row.document) {
    svg += fmt::format(
        "<path class=\"document\" d=\"M{:.1f} {:.1f}m0-6l6 6l-6 6l-6-6z\"><title>the "
        "document of {}: {} {}</title></path>",
        x(*row.document), y, html_text(row.name), short_number(*row.document),
        html_text(unit));
  }
  return svg + fmt::format(
                   "<text class=\"{}\" x=\"{}\" y=\"{:.1f}\" "
                   "text-anchor=\"end\">{}</text></g>\n",
                   row.wins ? "wins-text" : "", kWidth - 4, y + 4, value);
}

}  // namespace

size_t count_documents(const DotChart& chart) {
  return static_cast<size_t>(std::count_if(
      chart.rows.begin(), chart.rows.end(),
      [](const DotRow& row) { return row.document.has_value(); }));
}

std::string draw(const DotChart& chart) {
  size_t longest = 0;
  for (const auto& row : chart.rows) {
    longest = std::max(longest, std::min(row.name.size(), kLongestName));
  }
  const double left = 16 + kDotLetterWidth * static_cast<double>(longest);
  const double bottom = kDotTop + kRow * static_cast<double>(chart.rows.size());
  const Scale x = scale_of(chart).between(left, kWidth - kValueWidth);
  std::string svg = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0} {1:.0f}\" role=\"img\" "
      "aria-labelledby=\"{2}-title {2}-desc\">\n<title id=\"{2}-title\">{3}</title>\n"
      "<desc id=\"{2}-desc\">{3}, {4}: a dot for each of {5}. The table has the "
      "figures.</desc>\n",
      kWidth, bottom + kDotBottom, chart.id, html_text(chart.title),
      html_text(chart.unit),
      chart.rows.size() == 1 ? "1 run" : fmt::format("{} runs", chart.rows.size()));
  svg += draw_axis(x, left, bottom);
  for (size_t i = 0; i < chart.rows.size(); ++i) {
    svg += draw_row(
        chart.rows[i], chart.unit, x, left,
        kDotTop + kRow * (static_cast<double>(i) + 0.5));
  }
  return svg + "</svg>\n";
}

}  // namespace tandem::app
