#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tandem::app {

/// One row of table.json of several runs of a recipe, which are rows themselves.
///
/// Its figures are medians: of seconds, rates, accuracies and memory, each for itself.
/// All else is of the run with the median seconds, of an even number the faster of the
/// two, and so is `directory`. `runs` lists each run's own figures in the order of
/// running, `wall_seconds_range` the least and the most. A run that was not done is the
/// row as it is, with a reason that says which of them it was. One run is its own row.
/// `runs` is not empty.
nlohmann::ordered_json merge_repeats(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace tandem::app
