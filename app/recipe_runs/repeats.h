#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tandem::app {

/// Merges the rows of several runs of a recipe into one row of table.json.
///
/// Measured figures, such as times, accuracies and memory, are medians, each computed
/// separately. Other values, such as `directory`, come from the run with the median
/// time (seconds_in()). For an even number of runs, this is the faster of the two
/// middle runs. The key `runs` lists the figures of each run. The key
/// `wall_seconds_range` has the least and the greatest `wall_seconds`.
///
/// If the last run is not done, returns its row and adds the number of the run to the
/// reason. Returns a single row unchanged. There must be at least one row.
nlohmann::ordered_json merge_repeats(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace tandem::app
