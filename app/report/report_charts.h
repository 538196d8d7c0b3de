#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/report/conclusions.h"

namespace tandem::app {

/// Returns the series of a report's charts, which report.js gives to Chart.js: a list
/// of objects with "id", "title" and "group" ("main", "curves" or "costs"). Charts
/// without points are left out.
///
/// A line chart has
///  - "x" and "y": an axis each, "title" and "scale": "linear", "log" or, for
///    accuracies, "error", the logarithm of 100 - accuracy;
///  - "lines": one per run, or per recipe of a scaling: "run", "label", "style" (0 for
///    the best run; color and marker follow from it), "wins", "points" [x, y],
///    "tutorial" [x, y] and "ranges" [x, least, most];
///  - "marks": "label" and "kind": "winner" and "guide" with "points", "level" with
///    "y".
///
/// A cost has "unit", "scale" and "bars": "run", "style", "value" and, if known,
/// "least", "most" and "tutorial".
///
/// `table`: as add_conclusions() left it.
nlohmann::ordered_json make_charts(
    const nlohmann::ordered_json& table, const Conclusions& conclusions);

}  // namespace tandem::app
