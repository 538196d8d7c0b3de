#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/recipe_runs/planned_run.h"

namespace tandem::app {

/// A comparison of runs, with the flags of `compare` or `scaling`.
struct Comparison {
  // Name of the command: "compare" or "scaling".
  std::string kind;
  std::vector<std::string> recipes;
  // Flags of `tandem train` that override every recipe.
  Arguments train_flags;
  // Number of runs of each recipe. Reported figures are their medians.
  int repeats = 1;
  // Target accuracy, in percent; nullopt: no target. Conclusions::winner
  // (report/conclusions.h) depends on it.
  std::optional<double> target;
  // Directory for tables, report and runs.
  std::string out;
  std::vector<PlannedRun> runs;
  // Directories of the runs, relative to `out`.
  std::vector<std::string> directories;
};

/// Adds the flags that both commands have to `app`. `comparison.repeats` is the default
/// of --repeat.
void add_comparison_flags(CLI::App& app, Comparison& comparison);

/// Parses the arguments. Replaces the names of installed recipes by their paths, and an
/// empty `out` by a new name such as "compare-20261121-131500". Throws ConfigError if
/// the directory contains results of an earlier comparison.
void parse_comparison(
    CLI::App& app, const Arguments& arguments, Comparison& comparison);

/// Plans a run of a recipe on `nproc` ranks; 0: the number of ranks in the recipe.
/// `point` has more settings. Adds the run to the comparison, and returns it. Throws
/// the errors of plan_run().
PlannedRun& add_run(
    Comparison& comparison, const std::string& recipe, int nproc = 0,
    const GridPoint& point = {});

/// Executes the runs one after another, in `repeats` passes. If a run fails or is
/// skipped, continues with the other runs, and leaves this run out of the next passes.
/// Writes table.json (scaling.json for a scaling), table.md and report.html into `out`,
/// and prints the table.
///
/// Returns the exit code: 1 if a run failed or all runs were skipped. Throws DataError,
/// and writes no file, if the data sets of all runs are missing.
int run_comparison(const Comparison& comparison);

}  // namespace tandem::app
