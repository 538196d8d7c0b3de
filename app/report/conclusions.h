#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace tandem::app {

struct Winner {
  // Index of the run.
  size_t run = 0;
  // Point at which its curve reaches the target or ends: seconds of training and
  // percent; for a scaling, ranks and speed-up.
  double x = 0;
  double y = 0;
  // "name: 99.25 % after 12.3 s".
  std::string words;
};

/// Conclusions from the rows of a table, for the page and the terminal.
struct Conclusions {
  std::vector<ReportRun> runs;
  // Runs with a test accuracy, the best first and failed ones last; in a scaling all
  // runs in the order of the table.
  std::vector<size_t> order;
  // The first at the target, else the most accurate of at least two finished runs; in a
  // scaling the greatest speed-up.
  std::optional<Winner> winner;
  // "3 recipes: 2 done, 1 skipped".
  std::string counts;
  // A sentence about the winner; "" without a winner.
  std::string verdict;
  // Sentences that a reader needs to compare the figures fairly.
  std::vector<std::string> caveats;
};

/// Reads the metrics of the runs below `directory`. Adds to the table "counts",
/// "winner" if there is one, and to the rows of a scaling "speed_up", with
/// "speed_up_range" if runs were repeated.
Conclusions add_conclusions(
    nlohmann::ordered_json& table, const std::string& directory);

}  // namespace tandem::app
