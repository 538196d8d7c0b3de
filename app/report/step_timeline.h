#pragma once

#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace tandem::app {

/// Returns a section of a report with the timeline of one step, as an SVG picture.
/// Returns "" if no run has a trace (`--trace`).
///
/// The section shows the best run with a trace, or else the first run with one. From
/// the trace of rank 0, it takes a step of median duration, without the first steps. It
/// shows this step on the first ranks.
std::string step_timeline(const std::vector<ReportRun>& runs, const ReportRun* best);

}  // namespace tandem::app
