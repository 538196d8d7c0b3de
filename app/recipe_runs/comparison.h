#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/recipe_runs/planned_run.h"

namespace tandem::app {

/// Flags that both `compare` and `scaling` have.
struct ComparisonFlags {
  std::vector<std::string> recipes;
  RunOverrides overrides;
  // Number of runs of each recipe. Reported figures are their medians.
  int repeats = 1;
  std::string out;
};
/// Adds the flags of ComparisonFlags to `app`. `flags.repeats` is the default of
/// --repeat.
void add_comparison_flags(CLI::App& app, ComparisonFlags& flags);
/// Parses the arguments and replaces the names of installed recipes by their paths.
void parse_comparison(
    CLI::App& app, const Arguments& arguments, ComparisonFlags& flags);

/// Returns `out`, or a new name such as "KIND-20261121-131500" if `out` is empty.
/// Throws ConfigError if the directory contains results of an earlier comparison.
std::string comparison_directory(const std::string& out, const std::string& kind);

/// A comparison of runs, with its settings.
struct Comparison {
  // Name of the command: "compare" or "scaling".
  std::string kind;
  std::vector<PlannedRun> runs;
  int repeats = 1;
  // Target test accuracy, in percent; nullopt: no target. Conclusions::winner
  // (report/conclusions.h) depends on it.
  std::optional<double> target;
  std::string out;
};

/// Executes the runs one after another, in `repeats` passes. If a run fails or is
/// skipped, continues with the other runs, and leaves this run out of the next passes.
/// Writes table.json (scaling.json for a scaling), table.md and report.html into `out`,
/// and prints the table.
///
/// Returns the exit code: 1 if a run failed or all runs were skipped. Throws DataError,
/// and writes no file, if the data sets of all runs are missing.
int run_comparison(const Comparison& comparison);

}  // namespace tandem::app
