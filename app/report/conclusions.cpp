#include "app/report/conclusions.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "app/report/row_values.h"
#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

// Returns the row of the same recipe on the fewest ranks; nullptr if no row has a time.
const ordered_json* base_of(const ordered_json& row, const ordered_json& table) {
  const ordered_json* base = nullptr;
  for (const auto& other : table["rows"]) {
    const bool timed = seconds_in(other).value_or(0) > 0;
    if (timed && text_in(other, "recipe") == text_in(row, "recipe") &&
        (base == nullptr || number_in(other, "world_size").value_or(0) <
                                number_in(*base, "world_size").value_or(0))) {
      base = &other;
    }
  }
  return base;
}

// Returns the least and the greatest speed-up of the repeats. Each speed-up compares
// two runs of the same pass; a pass runs every recipe once.
ordered_json speed_up_range(const ordered_json& row, const ordered_json& base) {
  const auto own = part_in(row, "runs");
  const auto others = part_in(base, "runs");
  std::vector<double> values;
  for (size_t i = 0; i < std::min(own.size(), others.size()); ++i) {
    const auto ours = seconds_in(own[i]);
    const auto theirs = seconds_in(others[i]);
    if (ours && theirs && *ours > 0) {
      values.push_back(*theirs / *ours);
    }
  }
  if (values.empty()) {
    return {};
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"least", *least}, {"most", *most}};
}

void add_speed_ups(ordered_json& table) {
  for (auto& row : table["rows"]) {
    const auto seconds = seconds_in(row);
    const auto* base = base_of(row, table);
    if (!seconds || *seconds <= 0 || base == nullptr) {
      continue;
    }
    const double speed_up = *seconds_in(*base) / *seconds;
    const auto range = speed_up_range(row, *base);
    row["speed_up"] = speed_up;
    if (!range.empty()) {
      row["speed_up_range"] = range;
    }
  }
}

void add_counts(ordered_json& table) {
  ordered_json counts = {{"done", 0}, {"skipped", 0}, {"failed", 0}};
  for (const auto& row : table["rows"]) {
    const auto status = text_in(row, "status");
    if (counts.contains(status)) {
      counts[status] = counts[status].get<int>() + 1;
    }
  }
  table["counts"] = counts;
}

// Returns a text such as "3 recipes: 2 done, 1 skipped". Leaves out a status without
// rows.
std::string counts_text(const ordered_json& table, const std::string& noun) {
  std::vector<std::string> parts;
  for (const auto& [status, count] : table["counts"].items()) {
    if (count.get<int>() > 0) {
      parts.push_back(fmt::format("{} {}", count.get<int>(), status));
    }
  }
  const auto all = static_cast<int64_t>(table["rows"].size());
  return counted(all, noun) + (parts.empty() ? "" : ": " + join(parts));
}

std::string repeats_text(const ordered_json& table) {
  const auto repeats = static_cast<int>(number_in(table, "repeats").value_or(1));
  return repeats > 1 ? fmt::format(
                           "Figures are medians of {} runs, made in turn; {}.", repeats,
                           text_in(table, "kind") == "scaling"
                               ? "bars go from the least to the most"
                               : "curves are those of the median run")
                     : "Speed-ups are of one run each; --repeat 3 gives medians.";
}

// Returns a key by which runs are sorted. The better run has the smaller key.
std::tuple<bool, double, double, double> standing_of(const ReportRun& run) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const Measurement& best = best_of(run);
  const double error = run.metric->higher_is_better ? -best.value : best.value;
  return {!run.done, run.arrival.value_or(kNever), error, best.seconds};
}

std::string seconds_text(double seconds) {
  return seconds >= 999.5 ? fmt::format("{:.0f} s", seconds)
                          : fmt::format("{:.3g} s", seconds);
}

using WinnerAndSentence = std::pair<Winner, std::string>;

// Returns a target such as "98 %", with the part of the data set if it is not the test
// part.
std::string target_text(double target, const std::string& parts) {
  return fmt::format(
      "{:.4g} %{}", target, parts.empty() ? "" : " " + parts + "accuracy");
}

// `first` is the run that reached the target first.
WinnerAndSentence first_at_target(
    const std::vector<ReportRun>& runs, size_t first, double target) {
  const auto& run = runs[first];
  const auto& curve = run.test_metric;
  // Searches the curve for the point, because the curve belongs to one run, but the
  // arrival may be the median of several runs.
  const auto found = std::find_if(
      curve.begin(), curve.end(), [&](const auto& at) { return at.value >= target; });
  const Measurement& at = found == curve.end() ? best_of(run) : *found;
  const std::string after = seconds_text(*run.arrival);
  return {
      {first, at.seconds, at.value,
       fmt::format("{}: {:.4g} % after {}", run.name, target, after)},
      fmt::format(
          "First at {}: {}, after {} of training.", target_text(target, parts_of(runs)),
          run.name, after)};
}

// Returns the winner and the sentence about it.
WinnerAndSentence winner_of(
    const std::vector<ReportRun>& runs, size_t best, std::optional<double> target) {
  const auto& run = runs[best];
  if (run.arrival) {
    return first_at_target(runs, best, *target);
  }
  const Metric& metric = *run.metric;
  const double seconds = best_of(run).seconds;
  const double value = best_of(run).value;
  const auto equals =
      std::count_if(runs.begin(), runs.end(), [&](const ReportRun& other) {
        return other.done && other.metric == &metric && !other.test_metric.empty() &&
               best_of(other).value == value;
      });
  const std::string after = seconds_text(seconds);
  const std::string parts = parts_of(runs);
  const std::string best_text = fmt::format(
      "{}, {} after {} of training{}.", run.name, value_text(metric, value), after,
      equals > 1 ? fmt::format(", the fastest of {} with this {}", equals, metric.name)
                 : "");
  return {
      {best, seconds, value,
       fmt::format(
           "{}: {:.4g}{} after {}", run.name, value, metric.is_percentage ? " %" : "",
           after)},
      target
          ? fmt::format("No run reached {}; the best: ", target_text(*target, parts)) +
                best_text
          : fmt::format("Best {}{}: ", parts, metric.name) + best_text};
}

void judge_metric(Conclusions& made, std::optional<double> target) {
  const auto& runs = made.runs;
  const auto first = std::find_if(runs.begin(), runs.end(), [](const ReportRun& run) {
    return !run.test_metric.empty();
  });
  made.metric = first == runs.end() ? &kAccuracy : first->metric;
  if (target && made.metric != &kAccuracy) {
    made.caveats.push_back(fmt::format(
        "The target is an accuracy, so the run with the best {} wins.",
        made.metric->name));
    target = std::nullopt;
  }
  const auto begin = made.order.begin();
  const auto others = std::stable_partition(begin, made.order.end(), [&](size_t i) {
    return !runs[i].test_metric.empty() && runs[i].metric == made.metric;
  });
  std::stable_sort(begin, others, [&](size_t a, size_t b) {
    return standing_of(runs[a]) < standing_of(runs[b]);
  });
  if (std::count_if(begin, others, [&](size_t i) { return runs[i].done; }) > 1) {
    std::tie(made.winner, made.verdict) = winner_of(runs, made.order.front(), target);
  }
}

void judge_speed_up(Conclusions& made) {
  // On the fewest ranks, the speed-up is 1.
  double most = 1;
  for (size_t i = 0; i < made.runs.size(); ++i) {
    const auto& run = made.runs[i];
    const double speed_up = number_in(run.row, "speed_up").value_or(0);
    if (speed_up > most) {
      most = speed_up;
      made.winner = {
          i, number_in(run.row, "world_size").value_or(0), speed_up,
          fmt::format("{}: {:.2f}x", run.name, speed_up)};
      made.verdict = fmt::format(
          "Greatest speed-up: {}, {:.2f} times as fast as on the fewest ranks.",
          run.name, speed_up);
    }
  }
}

std::string epochs_text(double epochs) {
  return counted(static_cast<int64_t>(epochs), "epoch");
}

// Returns a text such as "short made 2 epochs of 14 on 1280 samples", which begins with
// the name of the run; "" for a run as long as the tutorial's run.
std::string shortened_text(const ReportRun& run, double epochs) {
  const auto tutorial = tutorial_in(run.row);
  const double limit = number_in(run.row, "limit").value_or(0);
  const double whole = number_in(tutorial, "epochs").value_or(0);
  const bool fewer = whole > 0 && whole != epochs;
  if (!(number_in(tutorial, "seconds") || number_in(tutorial, "test_accuracy")) ||
      !(fewer || limit > 0)) {
    return "";
  }
  return run.name + " made " + epochs_text(epochs) +
         (fewer ? fmt::format(" of {:.0f}", whole) : "") +
         (limit > 0 ? " on " + counted(static_cast<int64_t>(limit), "sample") : "");
}

// Returns a sentence about runs of different metrics; "" if all have the same metric.
std::string metrics_text(const std::vector<ReportRun>& runs) {
  std::vector<std::string> groups;
  for (const Metric* metric : kMetrics) {
    std::vector<std::string> names;
    for (const auto& run : runs) {
      if (!run.test_metric.empty() && run.metric == metric) {
        names.push_back(run.name);
      }
    }
    if (!names.empty()) {
      groups.push_back(fmt::format("{} in {}", metric->name, join(names)));
    }
  }
  return groups.size() > 1 ? "Runs of different metrics: " + join(groups, "; ") + "."
                           : "";
}

// Returns a sentence about runs that are evaluated on different parts; "" if all are
// evaluated on the same part.
std::string parts_text(const std::vector<ReportRun>& runs) {
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& run : runs) {
    if (!run.test_metric.empty()) {
      names[run.part].push_back(run.name);
    }
  }
  return names.size() > 1
             ? fmt::format(
                   "Runs of different parts: test in {}; validation in {}.",
                   join(names["test"]), join(names["validation"]))
             : "";
}

// Returns a sentence about a resumed run; "" if the run was not resumed.
std::string resumes_text(const ReportRun& run) {
  std::vector<std::string> steps;
  for (const auto& at : run.resumes) {
    steps.push_back(fmt::format("{:.0f}", at.value));
  }
  return steps.empty()
             ? ""
             : fmt::format(
                   "{} was resumed at step {}; its times are sums over all starts.",
                   run.name, join(steps));
}

void add_caveats(Conclusions& made) {
  for (const auto& run : made.runs) {
    if (const auto text = resumes_text(run); !text.empty()) {
      made.caveats.push_back(text);
    }
  }
  for (const auto& text : {metrics_text(made.runs), parts_text(made.runs)}) {
    if (!text.empty()) {
      made.caveats.push_back(text);
    }
  }
  std::map<double, std::vector<std::string>> by_epochs;
  std::vector<std::string> shortened;
  for (const auto& run : made.runs) {
    if (const auto epochs = number_in(run.row, "epochs")) {
      by_epochs[*epochs].push_back(run.name);
      if (const auto text = shortened_text(run, *epochs); !text.empty()) {
        shortened.push_back(text);
      }
    }
  }
  if (by_epochs.size() > 1) {
    std::vector<std::string> groups;
    for (const auto& [epochs, names] : by_epochs) {
      groups.push_back(epochs_text(epochs) + " in " + join(names));
    }
    made.caveats.push_back(
        "Runs of different numbers of epochs: " + join(groups, "; ") + ".");
  }
  if (!shortened.empty()) {
    made.caveats.push_back(
        "Figures of tutorials are of whole runs, but " + join(shortened, "; ") + ".");
  }
}

}  // namespace

Conclusions add_conclusions(ordered_json& table, const std::string& directory) {
  const std::string kind = text_in(table, "kind");
  const bool is_scaling = kind == "scaling";
  if (is_scaling) {
    add_speed_ups(table);
  }
  add_counts(table);
  const auto target = number_in(table, "target_accuracy");
  Conclusions made;
  made.runs = read_report_runs(table, directory, target);
  made.order.resize(made.runs.size());
  std::iota(made.order.begin(), made.order.end(), size_t{0});
  made.counts = counts_text(table, kind == "compare" ? "recipe" : "run");
  if (is_scaling || number_in(table, "repeats").value_or(1) > 1) {
    made.caveats.push_back(repeats_text(table));
  }
  if (is_scaling) {
    judge_speed_up(made);
  } else {
    judge_metric(made, target);
  }
  add_caveats(made);
  table.erase("winner");
  if (made.winner) {
    table["winner"] = {
        {"name", made.runs[made.winner->run].name}, {"why", made.verdict}};
  }
  return made;
}

}  // namespace tandem::app
