#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/report/report_run.h"
#include "app/report/standing.h"

namespace tandem::app {

/// A table with what follows from its rows, which page and terminal both say.
struct Conclusions {
  std::vector<ReportRun> runs;
  Standing standing;
  // "3 recipes: 2 done, 1 skipped".
  std::string counts;
  // Who won; "" where nobody did.
  std::string verdict;
  // What must be said of the figures, a sentence each.
  std::vector<std::string> caveats;
};

/// Adds to the table "counts", "winner" where there is one, and to the rows of a
/// scaling "speed_up", with "speed_up_range" where runs were repeated. Reads the runs'
/// metrics below `directory`.
Conclusions conclude(nlohmann::ordered_json& table, const std::string& directory);

}  // namespace tandem::app
