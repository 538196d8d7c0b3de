#pragma once

#include <string>

#include "app/report/conclusions.h"

namespace tandem::app {

/// Returns a section of a report with the timeline of one step, as an SVG picture.
/// Returns "" if no run has a trace (`--trace`).
///
/// The section shows the winner, or the first run with a trace if the winner has no
/// trace. From the trace of rank 0, it selects a step of median duration, without the
/// first steps. It shows this step on the first ranks.
std::string step_timeline(const Conclusions& conclusions);

}  // namespace tandem::app
