#include "app/report/report_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "app/report/row_values.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;
using Values = std::vector<double>;

// Rounds to six digits, more than a chart shows, so that the page stays small.
double rounded(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

ordered_json point(double x, double y) {
  return ordered_json::array({rounded(x), rounded(y)});
}

// Returns whether the greatest value is more than `times` the least positive value. On
// a linear axis from zero, the least value would then not be visible.
bool spread_over(double times, const Values& values) {
  double least = 0;
  double most = 0;
  for (const double value : values) {
    if (value > 0) {
      least = least == 0 ? value : std::min(least, value);
      most = std::max(most, value);
    }
  }
  return most > times * least;
}

// Returns "log" for values that a linear axis from zero would flatten.
const char* scale_for(const Values& values) {
  constexpr double kFlattened = 20;
  return spread_over(kFlattened, values) ? "log" : "linear";
}

// Returns scale_for(), but "linear" if a value is zero, such as the learning rate at
// the end of a schedule.
const char* scale_with_zero(const Values& values) {
  const bool all_positive =
      std::all_of(values.begin(), values.end(), [](double value) { return value > 0; });
  return all_positive ? scale_for(values) : "linear";
}

// Returns "error" if the errors differ by much. On a linear axis, a run with 24 % would
// flatten the difference between runs with 98 % and 99 %.
const char* scale_for_accuracies(const Values& values) {
  constexpr double kFlattened = 5;
  Values errors(values.size());
  std::transform(values.begin(), values.end(), errors.begin(), [](double value) {
    return 100 - value;
  });
  return spread_over(kFlattened, errors) ? "error" : "linear";
}

const char* scale_for_losses(const Values&) {
  return "log";
}

ordered_json new_line(const std::string& run, size_t style, bool wins) {
  return {{"run", run}, {"label", run}, {"style", style}, {"wins", wins}};
}

ordered_json winner_mark(const Winner& winner, const std::string& run) {
  return {
      {"kind", "winner"},
      {"label", winner.words},
      {"run", run},
      {"points", ordered_json::array({point(winner.x, winner.y)})}};
}

// Adds a vertical line for each point at which a run of the chart was resumed.
void add_resume_marks(
    ordered_json& marks, const ReportRun& run, double Measurement::*axis) {
  for (const auto& at : run.resumes) {
    marks.push_back(
        {{"kind", "resume"},
         {"label", fmt::format("{} resumed at step {:.0f}", run.name, at.value)},
         {"run", run.name},
         {"x", rounded(at.*axis)}});
  }
}

struct CurveKind {
  const char* id;
  // Name of the value; {} stands for the part of the data set and a space.
  const char* title;
  const char* unit;
  Curve ReportRun::*curve;
  const char* (*scale)(const Values& values);
  // The chart contains only runs of this metric; null: all runs.
  const Metric* metric = nullptr;
};
const CurveKind kCurves[] = {
    {"accuracy", "{}accuracy", ", %", &ReportRun::test_metric, &scale_for_accuracies,
     &kAccuracy},
    {"mae", "{}mean absolute error", "", &ReportRun::test_metric, &scale_for_losses,
     &kAbsoluteError},
    {"test-loss", "{}loss", "", &ReportRun::test_loss, &scale_for_losses},
    {"loss", "training loss", "", &ReportRun::train_loss, &scale_for_losses},
    {"lr", "learning rate", "", &ReportRun::lr, &scale_with_zero}};

std::string capitalized(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// Returns the name of a curve, such as "validation accuracy".
std::string name_of(const CurveKind& kind, const Conclusions& conclusions) {
  const std::string parts = parts_of(conclusions.runs);
  return fmt::format(fmt::runtime(kind.title), parts.empty() ? "test " : parts);
}

struct CurveAxis {
  const char* id;
  const char* title;
  double Measurement::*x;
};
const CurveAxis kAxes[] = {
    {"seconds", "seconds of training", &Measurement::seconds},
    {"samples", "samples", &Measurement::samples}};

// Returns a curve with fewer points that looks the same in a chart. A long curve has
// more points than a chart has pixels. Divides it into parts, and keeps the first, the
// lowest, the highest and the last point of each part.
Curve thinned(const Curve& curve) {
  constexpr size_t kParts = 500;
  if (curve.size() <= 4 * kParts) {
    return curve;
  }
  const auto size = static_cast<std::ptrdiff_t>((curve.size() + kParts - 1) / kParts);
  Curve kept;
  for (auto first = curve.begin(); first != curve.end();) {
    const auto end = first + std::min(size, curve.end() - first);
    const auto [low, high] = std::minmax_element(
        first, end, [](const auto& a, const auto& b) { return a.value < b.value; });
    for (auto at = first; at != end; ++at) {
      if (at == first || at == low || at == high || at == end - 1) {
        kept.push_back(*at);
      }
    }
    first = end;
  }
  return kept;
}

// The lines of a chart. `ends` contains the last x of each line, and `values` every y.
struct CurveLines {
  ordered_json lines = ordered_json::array();
  ordered_json marks = ordered_json::array();
  Values ends;
  Values values;
};

CurveLines lines_of(
    const CurveKind& kind, const CurveAxis& axis, const Conclusions& conclusions) {
  CurveLines made;
  for (size_t style = 0; style < conclusions.order.size(); ++style) {
    const auto& run = conclusions.runs[conclusions.order[style]];
    const Curve curve = thinned(run.*kind.curve);
    const bool other_metric = kind.metric != nullptr && kind.metric != run.metric;
    if (curve.empty() || other_metric) {
      continue;
    }
    const auto& winner = conclusions.winner;
    auto line =
        new_line(run.name, style, winner && winner->run == conclusions.order[style]);
    for (const auto& at : curve) {
      line["points"].push_back(point(at.*axis.x, at.value));
      made.values.push_back(at.value);
    }
    made.ends.push_back(curve.back().*axis.x);
    made.lines.push_back(line);
    add_resume_marks(made.marks, run, axis.x);
  }
  return made;
}

ordered_json curve_chart(
    const CurveKind& kind, const CurveAxis& axis, const CurveLines& curves,
    const Conclusions& conclusions) {
  const std::string name = name_of(kind, conclusions);
  return {
      {"id", fmt::format("{}-{}", kind.id, axis.id)},
      {"group", "curves"},
      {"title", fmt::format("{} against {}", capitalized(name), axis.id)},
      {"x", {{"title", axis.title}, {"scale", scale_for(curves.ends)}}},
      {"y", {{"title", name + kind.unit}, {"scale", kind.scale(curves.values)}}},
      {"lines", curves.lines},
      {"marks", curves.marks}};
}

// Returns the chart of the metric `kind` against seconds, with the winner and, for
// accuracies, the tutorials' results and the target.
ordered_json main_chart(
    const CurveKind& kind, const ordered_json& table, const Conclusions& conclusions) {
  const bool is_accuracy = kind.metric == &kAccuracy;
  auto curves = lines_of(kind, kAxes[0], conclusions);
  for (auto& line : curves.lines) {
    const auto& run = conclusions.runs[conclusions.order[line["style"].get<size_t>()]];
    line["label"] =
        fmt::format("{} ({})", run.name, value_text(*run.metric, best_of(run).value));
    const auto tutorial = tutorial_in(run.row);
    const auto seconds = number_in(tutorial, "seconds");
    const auto accuracy = number_in(tutorial, "test_accuracy");
    if (is_accuracy && seconds && accuracy) {
      line["tutorial"].push_back(point(*seconds, *accuracy));
      curves.ends.push_back(*seconds);
      curves.values.push_back(*accuracy);
    }
  }
  auto& marks = curves.marks;
  if (const auto& winner = conclusions.winner) {
    marks.push_back(winner_mark(*winner, conclusions.runs[winner->run].name));
  }
  if (const auto target = number_in(table, "target_accuracy"); is_accuracy && target) {
    marks.push_back(
        {{"kind", "level"},
         {"label", fmt::format("target {:.4g} %", *target)},
         {"y", *target}});
    curves.values.push_back(*target);
  }
  auto chart = curve_chart(kind, kAxes[0], curves, conclusions);
  chart["group"] = "main";
  return chart;
}

struct CostKind {
  const char* id;
  const char* title;
  const char* unit;
  // Key in a row; null for the runtime, which also has a range and the tutorial's
  // figure.
  const char* key;
  double divisor = 1;
};
const CostKind kCosts[] = {
    {"seconds", "Runtime", "s, whole program", nullptr},
    {"rate", "Throughput", "samples/s, training only", "samples_per_second"},
    {"bytes", "Sent", "MB per rank", "bytes_sent_per_rank", kMegabyte},
    {"exposed", "Exposed communication", "ms per step", "exposed_comm_ms_per_step"},
    {"memory", "Peak memory", "MiB, PSS of all processes", "peak_memory_mib"},
    {"device-memory", "Peak GPU memory", "MiB of all GPUs", "peak_device_memory_mib"}};

ordered_json cost_chart(const CostKind& kind, const Conclusions& conclusions) {
  const bool is_runtime = kind.key == nullptr;
  auto bars = ordered_json::array();
  Values values;
  for (size_t style = 0; style < conclusions.order.size(); ++style) {
    const auto& run = conclusions.runs[conclusions.order[style]];
    ordered_json bar = {{"run", run.name}, {"style", style}};
    const auto add = [&](const char* key, std::optional<double> value) {
      if (value) {
        values.push_back(*value / kind.divisor);
        bar[key] = rounded(values.back());
      }
    };
    add("value", is_runtime ? seconds_in(run.row) : number_in(run.row, kind.key));
    if (!bar.contains("value")) {
      continue;
    }
    if (is_runtime) {
      const auto range = part_in(run.row, "wall_seconds_range");
      add("least", number_in(range, "least"));
      add("most", number_in(range, "most"));
      add("tutorial", number_in(tutorial_in(run.row), "seconds"));
    }
    bars.push_back(bar);
  }
  return {{"id", kind.id},     {"group", "costs"}, {"title", kind.title},
          {"unit", kind.unit}, {"bars", bars},     {"scale", scale_with_zero(values)}};
}

struct RankKind {
  const char* id;
  const char* title;
  const char* axis;
  // Keys in a row, and the key in the tutorial's figures of the row.
  const char* value;
  const char* range;
  const char* tutorial;
};
const RankKind kSpeedUp = {"scaling-speed-up", "Speed-up against the fewest ranks",
                           "times as fast",    "speed_up",
                           "speed_up_range",   ""};
const RankKind kRankSeconds = {
    "scaling-seconds",
    "Runtime against the number of ranks",
    "seconds",
    "wall_seconds",
    "wall_seconds_range",
    "seconds"};

std::string stem_of(const ordered_json& row) {
  return std::filesystem::path(text_in(row, "recipe")).stem().string();
}

// Returns one line per recipe, with points in the order of the number of ranks.
ordered_json lines_by_ranks(const RankKind& kind, const Conclusions& conclusions) {
  auto lines = ordered_json::array();
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < conclusions.runs.size(); ++i) {
    const auto& row = conclusions.runs[i].row;
    const auto [place, is_new] = places.emplace(text_in(row, "recipe"), lines.size());
    if (is_new) {
      lines.push_back(new_line(stem_of(row), lines.size(), false));
    }
    auto& line = lines[place->second];
    if (conclusions.winner && conclusions.winner->run == i) {
      line["wins"] = true;
    }
    const auto ranks = number_in(row, "world_size");
    const auto add = [&](const char* key, std::optional<double> y) {
      if (ranks && y) {
        line[key].push_back(point(*ranks, *y));
      }
    };
    add("points", number_in(row, kind.value));
    add("tutorial", number_in(tutorial_in(row), kind.tutorial));
    const auto range = part_in(row, kind.range);
    const auto least = number_in(range, "least");
    const auto most = number_in(range, "most");
    if (ranks && least && most) {
      line["ranges"].push_back({*ranks, rounded(*least), rounded(*most)});
    }
  }
  for (auto& line : lines) {
    std::sort(line["points"].begin(), line["points"].end());
  }
  return lines;
}

ordered_json rank_chart(const RankKind& kind, const Conclusions& conclusions) {
  const auto lines = lines_by_ranks(kind, conclusions);
  Values values;
  for (const auto& line : lines) {
    for (const char* key : {"points", "tutorial"}) {
      for (const auto& at : part_in(line, key)) {
        values.push_back(at[1].get<double>());
      }
    }
  }
  return {
      {"id", kind.id},
      {"group", "curves"},
      {"title", kind.title},
      {"x", {{"title", "ranks"}, {"scale", "linear"}}},
      {"y", {{"title", kind.axis}, {"scale", scale_for(values)}}},
      {"lines", lines},
      {"marks", ordered_json::array()}};
}

ordered_json speed_up_chart(const Conclusions& conclusions) {
  auto chart = rank_chart(kSpeedUp, conclusions);
  chart["group"] = "main";
  if (const auto& winner = conclusions.winner) {
    chart["marks"].push_back(
        winner_mark(*winner, stem_of(conclusions.runs[winner->run].row)));
  }
  Values ranks;
  for (const auto& run : conclusions.runs) {
    ranks.push_back(number_in(run.row, "world_size").value_or(1));
  }
  if (!ranks.empty()) {
    const auto [fewest, most] = std::minmax_element(ranks.begin(), ranks.end());
    chart["marks"].push_back(
        {{"kind", "guide"},
         {"label", "ideal"},
         {"points",
          {point(*fewest, 1), point(*most, *most / std::max(1.0, *fewest))}}});
  }
  return chart;
}

bool has_points(const ordered_json& chart) {
  const auto lines = part_in(chart, chart.contains("bars") ? "bars" : "lines");
  return std::any_of(lines.begin(), lines.end(), [](const ordered_json& line) {
    return line.contains("value") || line.contains("points");
  });
}

}  // namespace

ordered_json make_charts(const ordered_json& table, const Conclusions& conclusions) {
  std::vector<ordered_json> charts;
  if (text_in(table, "kind") == "scaling") {
    charts = {speed_up_chart(conclusions), rank_chart(kRankSeconds, conclusions)};
  } else {
    for (const auto& kind : kCurves) {
      for (const auto& axis : kAxes) {
        if (kind.metric == conclusions.metric && &axis == &kAxes[0]) {
          charts.insert(charts.begin(), main_chart(kind, table, conclusions));
        } else {
          charts.push_back(
              curve_chart(kind, axis, lines_of(kind, axis, conclusions), conclusions));
        }
      }
    }
    // With one run there are no costs to compare.
    for (const auto& kind : kCosts) {
      if (conclusions.runs.size() > 1) {
        charts.push_back(cost_chart(kind, conclusions));
      }
    }
  }
  auto json = ordered_json::array();
  std::copy_if(charts.begin(), charts.end(), std::back_inserter(json), &has_points);
  return json;
}

}  // namespace tandem::app
