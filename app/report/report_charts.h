#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/report/dot_chart.h"
#include "app/report/line_chart.h"
#include "app/report/report_run.h"
#include "app/report/standing.h"

namespace tandem::app {

/// A name of the legend.
struct LegendEntry {
  std::string name;
  size_t slot = 0;
};

/// The charts of a report, none of them without points but the first.
struct ReportCharts {
  // The one to look at first, and its picture.
  LineChart main;
  std::vector<LineChart> others;
  std::vector<DotChart> costs;
  // In the order of their slots, the best first.
  std::vector<LegendEntry> legend;
};

/// Of recipes compared, or of one run: accuracy against seconds, and the rest.
ReportCharts charts_of_runs(
    const std::vector<ReportRun>& runs, const Standing& standing,
    std::optional<double> target);

/// Of a scaling: a line per recipe against the number of ranks.
ReportCharts charts_of_scaling(
    const std::vector<ReportRun>& runs, const Standing& standing);

}  // namespace tandem::app
