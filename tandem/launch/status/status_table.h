#pragma once

#include <string>

#include "tandem/launch/status/run_status.h"

namespace tandem {

/// Returns a table for the terminal: a line about the run, a line of headings, and a
/// line for each rank.
std::string status_table(const RunStatus& status);

}  // namespace tandem
