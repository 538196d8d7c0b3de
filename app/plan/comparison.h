#pragma once

#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/plan/planned_run.h"

namespace tandem::app {

/// Flags that compare and scaling have in common.
struct ComparisonFlags {
  std::vector<std::string> recipes;
  RunOverrides overrides;
  std::string out;
};
void add_comparison_flags(CLI::App& app, ComparisonFlags& flags);

/// --out, or a new name "KIND-20261121-131500". Throws ConfigError when an earlier
/// comparison is there.
std::string comparison_directory(const std::string& out, const std::string& kind);

/// Runs all, one after the other, also after one that failed; writes KIND's JSON,
/// table.md and report.html into `out` and the table to standard output. Returns
/// the exit code: 1 when a run failed or none was made.
int run_comparison(
    const std::string& kind, const std::vector<PlannedRun>& runs,
    const std::string& out);

}  // namespace tandem::app
