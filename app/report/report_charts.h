#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/report/conclusions.h"

namespace tandem::app {

/// Returns the charts of a report, which report.js draws with Chart.js: a list of
/// objects with "id", "title" and "group" ("main", "curves" or "costs"). Charts without
/// points are left out.
///
/// A line chart also has these members:
/// - "x" and "y": the axes, with "title" and "scale". The scale is "linear", "log" or,
///   for accuracies, "error", which is the logarithm of 100 - accuracy.
/// - "lines": one line per run, or per recipe of a scaling, with "run", "label",
///   "style" (0 for the best run; it determines color and marker), "wins", "points"
///   [x, y], "tutorial" [x, y] and "ranges" [x, least, most].
/// - "marks": objects with "label" and "kind". The kinds "winner" and "guide" have
///   "points", the kind "level" has "y", and the kind "resume" has "x".
///
/// A chart of the group "costs" also has "unit", "scale" and "bars". Each bar has
/// "run", "style", "value" and, if known, "least", "most" and "tutorial".
///
/// `table` contains the additions of add_conclusions().
nlohmann::ordered_json make_charts(
    const nlohmann::ordered_json& table, const Conclusions& conclusions);

}  // namespace tandem::app
