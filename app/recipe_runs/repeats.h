#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tandem::app {

/// Merges the rows of several runs of a recipe into one row of table.json.
///
/// Seconds, rates, accuracies and memory are medians, each taken separately. Other
/// values, such as `directory`, are those of the run with the median seconds; of an
/// even number of runs, the faster of the two in the middle. `runs` lists the figures
/// of each run in their order, `wall_seconds_range` the least and the most. If the last
/// run is not done, the result is its row, with the number of the run in the reason. A
/// single run is returned unchanged. `runs` is not empty.
nlohmann::ordered_json merge_repeats(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace tandem::app
