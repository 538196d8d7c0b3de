#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/recipe_runs/planned_run.h"

namespace tandem::app {

/// Flags that compare and scaling have in common.
struct ComparisonFlags {
  std::vector<std::string> recipes;
  RunOverrides overrides;
  // How often each recipe is run; figures are medians.
  int repeats = 1;
  std::string out;
};
/// `flags.repeats`: the default of --repeat.
void add_comparison_flags(CLI::App& app, ComparisonFlags& flags);
/// Parses the arguments and replaces the names of installed recipes by their paths.
void parse_comparison(
    CLI::App& app, const Arguments& arguments, ComparisonFlags& flags);

/// --out, or a new name "KIND-20261121-131500". Throws ConfigError if an earlier
/// comparison left results there.
std::string comparison_directory(const std::string& out, const std::string& kind);

/// What a comparison does.
struct Comparison {
  // "compare" or "scaling".
  std::string kind;
  std::vector<PlannedRun> runs;
  int repeats = 1;
  // Percent; the first run with this test accuracy wins.
  std::optional<double> target;
  std::string out;
};

/// Runs all, one after the other, also after one that failed, and then all again until
/// each has been run `repeats` times. Writes KIND's JSON, table.md and report.html
/// into `out`, and the table to standard output. Returns the exit code: 1
/// when a run failed or none was made. Skipped ones count as neither. Throws DataError,
/// before anything is written, if the data set of every run is missing.
int run_comparison(const Comparison& comparison);

}  // namespace tandem::app
