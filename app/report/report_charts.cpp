#include "app/report/report_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace tandem::app {

namespace {

using Curve = std::vector<Point> ReportRun::*;

// What of a run a chart shows, and against what.
struct CurveKind {
  const char* id;
  const char* title;
  const char* x_title;
  const char* x_unit;
  const char* y_title;
  const char* y_unit;
  Curve curve;
  bool is_accuracy;
};

const CurveKind kAccuracyBySeconds = {
    "accuracy-seconds",
    "Test accuracy against seconds",
    "seconds of training",
    "s",
    "test accuracy, %",
    "%",
    &ReportRun::accuracy_by_seconds,
    true};
const CurveKind kOtherCurves[] = {
    {"accuracy-samples", "Test accuracy against samples", "samples", "samples",
     "test accuracy, %", "%", &ReportRun::accuracy_by_samples, true},
    {"loss-seconds", "Training loss against seconds", "seconds of training", "s",
     "training loss", "", &ReportRun::loss_by_seconds, false},
    {"loss-samples", "Training loss against samples", "samples", "samples",
     "training loss", "", &ReportRun::loss_by_samples, false}};

// The best first, then those of which nothing but a loss is known.
std::vector<size_t> legend_order(
    const std::vector<ReportRun>& runs, const Standing& standing) {
  std::vector<size_t> order = standing.order;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].accuracy_by_samples.size() + runs[i].loss_by_samples.size() > 0 &&
        std::find(order.begin(), order.end(), i) == order.end()) {
      order.push_back(i);
    }
  }
  return order;
}

std::vector<double> values_of(
    const std::vector<Line>& lines, double Point::*axis, bool of_documents) {
  std::vector<double> values;
  for (const auto& line : lines) {
    for (const auto& point : line.points) {
      values.push_back(point.*axis);
    }
    for (const auto& point : line.of_document) {
      if (of_documents) {
        values.push_back(point.*axis);
      }
    }
    for (const auto& range : line.ranges) {
      if (axis == &Point::y) {
        values.insert(values.end(), {range.least, range.most});
      }
    }
  }
  return values;
}

// Even from zero, or by the logarithm where that would flatten a line.
Scale scale_along(const std::vector<Line>& lines) {
  std::vector<double> ends;
  for (const auto& line : lines) {
    for (const auto* points : {&line.points, &line.of_document}) {
      if (!points->empty()) {
        ends.push_back(points->back().x);
      }
    }
  }
  const auto values = values_of(lines, &Point::x, true);
  return want_logarithm(ends) ? Scale::logarithmic(values) : Scale::even(values, true);
}

LineChart chart_of(
    const CurveKind& kind, const std::vector<ReportRun>& runs,
    const std::vector<size_t>& order, const Standing& standing) {
  LineChart chart;
  chart.id = kind.id;
  chart.title = kind.title;
  chart.x_title = kind.x_title;
  chart.y_title = kind.y_title;
  chart.x_unit = kind.x_unit;
  chart.y_unit = kind.y_unit;
  chart.has_dots = kind.is_accuracy;
  for (size_t slot = 0; slot < order.size(); ++slot) {
    const auto& run = runs[order[slot]];
    Line line;
    line.name = run.name;
    line.slot = slot;
    line.points = run.*kind.curve;
    line.wins = standing.winner && standing.winner->run == order[slot];
    if (kind.is_accuracy && !line.points.empty()) {
      line.result = fmt::format("{:.2f} %", line.points.back().y);
    }
    chart.lines.push_back(line);
  }
  chart.description = fmt::format(
      "{}, a line for each of {} runs. {}", chart.title, chart.lines.size(),
      standing.verdict);
  return chart;
}

void set_scales(LineChart& chart, bool is_accuracy) {
  chart.x = scale_along(chart.lines);
  const auto heights = values_of(chart.lines, &Point::y, true);
  chart.y = is_accuracy ? Scale::even(heights, false) : Scale::logarithmic(heights);
}

LineChart accuracy_by_seconds(
    const std::vector<ReportRun>& runs, const std::vector<size_t>& order,
    const Standing& standing, std::optional<double> target) {
  LineChart chart = chart_of(kAccuracyBySeconds, runs, order, standing);
  for (auto& line : chart.lines) {
    const auto& run = runs[order[line.slot]];
    if (run.document_seconds && run.document_accuracy) {
      line.of_document = {{*run.document_seconds, *run.document_accuracy}};
    }
  }
  set_scales(chart, true);
  if (standing.winner) {
    chart.winner = Mark{standing.winner->at, standing.winner->words};
  }
  if (target) {
    auto heights = values_of(chart.lines, &Point::y, true);
    heights.push_back(*target);
    chart.y = Scale::even(heights, false);
    chart.target = Level{*target, fmt::format("target {:.4g} %", *target)};
  }
  return chart;
}

using Figure = std::optional<double> ReportRun::*;

DotChart costs_of(
    const char* id, const char* title, const char* unit,
    const std::vector<ReportRun>& runs, const std::vector<size_t>& order,
    const Standing& standing, Figure figure) {
  DotChart chart{id, title, unit, {}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    if (!(run.*figure)) {
      continue;
    }
    DotRow row;
    row.name = run.name;
    row.value = *(run.*figure);
    row.wins = standing.winner && standing.winner->run == i;
    const auto place = std::find(order.begin(), order.end(), i);
    if (place != order.end()) {
      row.slot = static_cast<size_t>(place - order.begin());
    }
    if (figure == &ReportRun::seconds) {
      row.least = run.least_seconds;
      row.most = run.most_seconds;
      row.document = run.document_seconds;
    }
    chart.rows.push_back(row);
  }
  return chart;
}

std::string stem_of(const std::string& recipe) {
  return std::filesystem::path(recipe).stem().string();
}

// What of a run stands at its number of ranks.
struct RankFigures {
  Figure value;
  Figure least;
  Figure most;
  // nullptr where documents have none.
  Figure of_document;
};
const RankFigures kSpeedUps = {
    &ReportRun::speed_up, &ReportRun::least_speed_up, &ReportRun::most_speed_up,
    nullptr};
const RankFigures kRuntimes = {
    &ReportRun::seconds, &ReportRun::least_seconds, &ReportRun::most_seconds,
    &ReportRun::document_seconds};

// One line per recipe, its points in the order of ranks.
std::vector<Line> lines_by_ranks(
    const std::vector<ReportRun>& runs, const Standing& standing,
    const RankFigures& figures) {
  std::vector<Line> lines;
  std::map<std::string, size_t> slots;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    const auto [found, is_new] = slots.emplace(run.recipe, lines.size());
    if (is_new) {
      Line line;
      line.name = stem_of(run.recipe);
      line.slot = lines.size();
      lines.push_back(line);
    }
    Line& line = lines[found->second];
    const auto ranks = static_cast<double>(run.ranks);
    if (run.*figures.value) {
      line.points.push_back({ranks, *(run.*figures.value)});
    }
    if (run.*figures.least && run.*figures.most) {
      line.ranges.push_back({ranks, *(run.*figures.least), *(run.*figures.most)});
    }
    if (figures.of_document != nullptr && run.*figures.of_document) {
      line.of_document.push_back({ranks, *(run.*figures.of_document)});
    }
    line.wins = line.wins || (standing.winner && standing.winner->run == i);
  }
  for (auto& line : lines) {
    for (auto* points : {&line.points, &line.of_document}) {
      std::sort(points->begin(), points->end(), [](const Point& a, const Point& b) {
        return a.x < b.x;
      });
    }
  }
  return lines;
}

LineChart chart_by_ranks(
    const char* id, const char* title, const char* y_title, const char* y_unit,
    const std::vector<Line>& lines) {
  LineChart chart;
  chart.id = id;
  chart.title = title;
  chart.x_title = "ranks";
  chart.x_unit = "ranks";
  chart.y_title = y_title;
  chart.y_unit = y_unit;
  chart.lines = lines;
  chart.x = Scale::whole(values_of(lines, &Point::x, true));
  chart.description = fmt::format("{}, a line for each recipe.", title);
  return chart;
}

LineChart speed_ups(const std::vector<ReportRun>& runs, const Standing& standing) {
  const auto lines = lines_by_ranks(runs, standing, kSpeedUps);
  LineChart chart = chart_by_ranks(
      "scaling-speed-up", "Speed-up against the fewest ranks", "times as fast",
      "times as fast", lines);
  for (auto& line : chart.lines) {
    const auto most = std::max_element(
        line.points.begin(), line.points.end(),
        [](const Point& a, const Point& b) { return a.y < b.y; });
    line.result =
        most == line.points.end() ? "" : fmt::format("up to {:.2f}x", most->y);
  }
  const auto ranks = values_of(lines, &Point::x, false);
  auto heights = values_of(lines, &Point::y, false);
  if (!ranks.empty()) {
    const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
    const double least_ranks = std::max(1.0, *least);
    chart.guide = {{*least, 1}, {*most, *most / least_ranks}};
    chart.guide_words = "ideal";
    heights.push_back(chart.guide.back().y);
  }
  chart.y = Scale::even(heights, true);
  if (standing.winner) {
    chart.winner = Mark{standing.winner->at, standing.winner->words};
  }
  chart.description += " " + standing.verdict;
  return chart;
}

LineChart runtimes(const std::vector<ReportRun>& runs, const Standing& standing) {
  LineChart chart = chart_by_ranks(
      "scaling-seconds", "Runtime against the number of ranks", "seconds", "s",
      lines_by_ranks(runs, standing, kRuntimes));
  const auto heights = values_of(chart.lines, &Point::y, true);
  chart.y = want_logarithm(heights) ? Scale::logarithmic(heights)
                                    : Scale::even(heights, true);
  return chart;
}

}  // namespace

ReportCharts charts_of_runs(
    const std::vector<ReportRun>& runs, const Standing& standing,
    std::optional<double> target) {
  const auto order = legend_order(runs, standing);
  ReportCharts charts;
  for (size_t slot = 0; slot < order.size(); ++slot) {
    charts.legend.push_back({runs[order[slot]].name, slot});
  }
  charts.main = accuracy_by_seconds(runs, order, standing, target);
  for (const auto& kind : kOtherCurves) {
    LineChart chart = chart_of(kind, runs, order, standing);
    set_scales(chart, kind.is_accuracy);
    charts.others.push_back(chart);
  }
  const auto add = [&](const char* id, const char* title, const char* unit,
                       Figure figure) {
    const auto chart = costs_of(id, title, unit, runs, order, standing, figure);
    if (!chart.rows.empty()) {
      charts.costs.push_back(chart);
    }
  };
  add("seconds", "Runtime", "s, whole program", &ReportRun::seconds);
  add("rate", "Throughput", "samples/s, training only", &ReportRun::samples_per_second);
  add("bytes", "Sent", "MB per rank", &ReportRun::megabytes_sent);
  add("exposed", "Exposed communication", "ms per step", &ReportRun::exposed_ms);
  add("memory", "Peak memory", "MiB, PSS of all processes", &ReportRun::memory_mib);
  add("device-memory", "Peak GPU memory", "MiB of all GPUs",
      &ReportRun::device_memory_mib);
  return charts;
}

ReportCharts charts_of_scaling(
    const std::vector<ReportRun>& runs, const Standing& standing) {
  ReportCharts charts;
  charts.main = speed_ups(runs, standing);
  charts.others.push_back(runtimes(runs, standing));
  for (const auto& line : charts.main.lines) {
    charts.legend.push_back({line.name, line.slot});
  }
  return charts;
}

}  // namespace tandem::app
