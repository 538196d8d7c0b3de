#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace tandem::app {

struct Winner {
  // Which of the runs.
  size_t run = 0;
  // Where its drawn curve reaches the target, or ends: seconds of training, percent.
  Point at;
  // Of training until then; the median where runs were repeated.
  double seconds = 0;
  // "99 % after 12.3 s".
  std::string words;
};

/// How runs stand to each other.
struct Standing {
  // Those with an accuracy: who reached the target first, or has the best accuracy at
  // its end in the fewest seconds, comes first. Runs that failed come last.
  std::vector<size_t> order;
  // Of at least two; of those that are done.
  std::optional<Winner> winner;
  // In a sentence; "" without a winner.
  std::string verdict;
};

/// `target`: percent of test accuracy; with none the best accuracy wins, and the
/// best too where nobody reached it.
Standing judge(const std::vector<ReportRun>& runs, std::optional<double> target);

/// The greatest speed-up of a scaling, on more than the fewest ranks. `at` is ranks
/// and speed-up; the order is that of the runs.
Standing judge_speed_ups(const std::vector<ReportRun>& runs);

/// What must be said of a picture with these runs, a sentence each: that they differ
/// in epochs, that documents' figures are of longer runs.
std::vector<std::string> caveats(const std::vector<ReportRun>& runs);

}  // namespace tandem::app
