#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/recipe_runs/planned_run.h"

namespace tandem::app {

/// Flags of both compare and scaling.
struct ComparisonFlags {
  std::vector<std::string> recipes;
  RunOverrides overrides;
  // Number of runs of each recipe; figures are medians.
  int repeats = 1;
  std::string out;
};
/// Adds the flags. `flags.repeats` is the default of --repeat.
void add_comparison_flags(CLI::App& app, ComparisonFlags& flags);
/// Parses the arguments and replaces the names of installed recipes by their paths.
void parse_comparison(
    CLI::App& app, const Arguments& arguments, ComparisonFlags& flags);

/// Returns `out`, or a new name such as "KIND-20261121-131500" if it is empty. Throws
/// ConfigError if an earlier comparison left results there.
std::string comparison_directory(const std::string& out, const std::string& kind);

/// Runs of a comparison.
struct Comparison {
  // "compare" or "scaling".
  std::string kind;
  std::vector<PlannedRun> runs;
  int repeats = 1;
  // Percent; the first run with this test accuracy wins.
  std::optional<double> target;
  std::string out;
};

/// Runs all, one after another, and repeats that `repeats` times; a failed run does not
/// stop the others. Writes the JSON of KIND, table.md and report.html into `out`, and
/// the table to standard output. Returns the exit code: 1 if a run failed or all were
/// skipped. Throws DataError, before anything is written, if the data set of every run
/// is missing.
int run_comparison(const Comparison& comparison);

}  // namespace tandem::app
