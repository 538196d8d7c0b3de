#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace tandem::app {

/// The winner among the runs of a table.
struct Winner {
  // Index of the winner in Conclusions::runs.
  size_t run = 0;
  // Point at which the run's curve reaches the target or its best value: training time
  // in seconds and value of the metric. In a table of `tandem scaling`: number of ranks
  // and speed-up.
  double x = 0;
  double y = 0;
  // Label in the chart, such as "name: 99.25 % after 12.3 s".
  std::string words;
};

/// Results that are derived from a table, for report.html and the terminal.
struct Conclusions {
  std::vector<ReportRun> runs;
  // Metric by which runs are compared: the metric of the first run with a test result.
  const Metric* metric = &kAccuracy;
  // Indices of all runs. First, the runs with a test result of `metric`: best runs
  // first, failed runs last. Then the other runs. In a table of `tandem scaling`, in
  // the order of the table.
  std::vector<size_t> order;
  // The run that reached the target accuracy first. If no run reached it, the run with
  // the best metric; nullopt if fewer than two runs are done. In a table of `tandem
  // scaling`, the run with the greatest speed-up; nullopt if no speed-up is above 1.
  std::optional<Winner> winner;
  // Number of runs by status, such as "3 recipes: 2 done, 1 skipped".
  std::string counts;
  // A sentence about the winner; "" if there is no winner.
  std::string verdict;
  // Sentences about differences between the runs that limit a comparison of their
  // figures.
  std::vector<std::string> caveats;
};

/// Derives the conclusions from a table and from the metrics of its runs below
/// `directory`. Adds "counts" to the table, and "winner" if there is a winner. Adds
/// "speed_up" to the rows of `tandem scaling`, and "speed_up_range" if runs were
/// repeated.
Conclusions add_conclusions(
    nlohmann::ordered_json& table, const std::string& directory);

}  // namespace tandem::app
