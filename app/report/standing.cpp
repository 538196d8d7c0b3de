#include "app/report/standing.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "tandem/base/error.h"

namespace tandem::app {

namespace {

// Less is better.
std::tuple<bool, double, double, double> rank_of(
    const ReportRun& run, bool by_arrival) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const Point end = run.accuracy_by_seconds.back();
  return {!run.done, by_arrival ? run.arrival.value_or(kNever) : kNever, -end.y, end.x};
}

std::string seconds_text(double seconds) {
  return short_number(seconds) + " s of training";
}

Winner winner_of(
    const std::vector<ReportRun>& runs, size_t best, std::optional<double> target) {
  const auto& run = runs[best];
  Winner winner;
  winner.run = best;
  winner.at = run.accuracy_by_seconds.back();
  winner.seconds = run.arrival.value_or(winner.at.x);
  if (run.arrival) {
    const auto& points = run.accuracy_by_seconds;
    const auto first = std::find_if(
        points.begin(), points.end(),
        [&](const Point& point) { return point.y >= *target; });
    winner.at = first != points.end() ? *first : winner.at;
  }
  winner.words = fmt::format(
      "{}: {:.4g} % after {} s", run.name, run.arrival ? *target : winner.at.y,
      short_number(winner.seconds));
  return winner;
}

std::string verdict_on(
    const std::vector<ReportRun>& runs, const Winner& winner,
    std::optional<double> target) {
  const auto& run = runs[winner.run];
  if (run.arrival) {
    return fmt::format(
        "First at {:.4g} %: {}, after {}.", *target, run.name,
        seconds_text(winner.seconds));
  }
  const auto as_good =
      std::count_if(runs.begin(), runs.end(), [&](const ReportRun& other) {
        return other.done && !other.accuracy_by_seconds.empty() &&
               other.accuracy_by_seconds.back().y == winner.at.y;
      });
  const std::string best = fmt::format(
      "{}, {:.2f} % after {}{}.", run.name, winner.at.y, seconds_text(winner.seconds),
      as_good > 1 ? fmt::format(", the fastest of {} with as much", as_good) : "");
  return target ? fmt::format("No run reached {:.4g} %; the best: ", *target) + best
                : "Best accuracy: " + best;
}

std::string epochs_text(int64_t epochs) {
  return fmt::format("{} epoch{}", epochs, epochs == 1 ? "" : "s");
}

}  // namespace

Standing judge(const std::vector<ReportRun>& runs, std::optional<double> target) {
  Standing standing;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].accuracy_by_seconds.empty()) {
      standing.order.push_back(i);
    }
  }
  std::stable_sort(
      standing.order.begin(), standing.order.end(), [&](size_t a, size_t b) {
        return rank_of(runs[a], target.has_value()) <
               rank_of(runs[b], target.has_value());
      });
  const auto done = std::count_if(
      standing.order.begin(), standing.order.end(),
      [&](size_t i) { return runs[i].done; });
  if (done > 1) {
    standing.winner = winner_of(runs, standing.order.front(), target);
    standing.verdict = verdict_on(runs, *standing.winner, target);
  }
  return standing;
}

Standing judge_speed_ups(const std::vector<ReportRun>& runs) {
  Standing standing;
  for (size_t i = 0; i < runs.size(); ++i) {
    standing.order.push_back(i);
    const double value = runs[i].speed_up.value_or(0);
    // One is what the fewest ranks have.
    if (value > (standing.winner ? standing.winner->at.y : 1)) {
      Winner winner;
      winner.run = i;
      winner.at = {static_cast<double>(runs[i].ranks), value};
      winner.words = fmt::format("{}: {:.2f}x", runs[i].name, value);
      standing.winner = winner;
    }
  }
  if (standing.winner) {
    standing.verdict = fmt::format(
        "Greatest speed-up: {}, {:.2f} times as fast as on the fewest ranks.",
        runs[standing.winner->run].name, standing.winner->at.y);
  }
  return standing;
}

std::vector<std::string> caveats(const std::vector<ReportRun>& runs) {
  std::map<int64_t, std::vector<std::string>> by_epochs;
  std::vector<std::string> shortened;
  for (const auto& run : runs) {
    if (run.epochs < 0) {
      continue;
    }
    by_epochs[run.epochs].push_back(run.name);
    const bool has_figures = run.document_seconds || run.document_accuracy;
    const bool fewer = run.document_epochs > 0 && run.document_epochs != run.epochs;
    if (has_figures && (fewer || run.limit > 0)) {
      shortened.push_back(
          run.name + " made " + epochs_text(run.epochs) +
          (fewer ? fmt::format(" of {}", run.document_epochs) : "") +
          (run.limit > 0 ? fmt::format(" on {} samples", run.limit) : ""));
    }
  }
  std::vector<std::string> made;
  if (by_epochs.size() > 1) {
    std::vector<std::string> groups;
    for (const auto& [epochs, names] : by_epochs) {
      groups.push_back(epochs_text(epochs) + " in " + join(names));
    }
    made.push_back("Runs of different numbers of epochs: " + join(groups, "; ") + ".");
  }
  if (!shortened.empty()) {
    made.push_back(
        "Documents' figures are of whole runs, but " + join(shortened, "; ") + ".");
  }
  return made;
}

}  // namespace tandem::app
