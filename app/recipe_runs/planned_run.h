#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/base/process.h"
#include "tandem/config/run_config.h"
#include "tandem/config/tutorial_figures.h"

namespace tandem::app {

/// A run of a recipe that run_planned() will execute as `tandem train RECIPE ...`.
struct PlannedRun {
  // Name of the run in tables, and of the directory of its first repeat.
  std::string name;
  std::string recipe;
  // Directory of each repeat, relative to the directory of the comparison.
  std::vector<std::string> directories;
  // Arguments of `tandem train` without --out, which differs between repeats.
  Arguments train_arguments;
  RunConfig config;
  TutorialFigures tutorial;
  // Settings of the recipe without flags.
  RunConfig recipe_config;
  // Environment variables added for the run.
  Variables variables;
  // Reason to skip the run, or "".
  std::string obstacle;
};

/// Settings of one run of `tandem compare --grid`.
struct GridPoint {
  // Last part of the run's name, such as "-lr=0.1-seed=2"; "" without a grid.
  std::string suffix;
  // Flags of `tandem train`.
  Arguments flags;
};

/// Returns all combinations of the values in `grids`, such as "lr=0.1,0.5" and
/// "seed=1,2". Values of the last grid change first. Returns one point without flags if
/// `grids` is empty. Throws ConfigError if a text is not SETTING=VALUE,VALUE.
std::vector<GridPoint> points_of(const std::vector<std::string>& grids);

/// Reads a recipe and plans its run. Throws the errors of `tandem train` for an invalid
/// recipe or setting.
///
/// - `flags`: flags of `tandem train` that override the recipe
/// - `nproc`: number of ranks; 0: the value in the recipe
/// - `point`: settings that override `flags`
/// - `out`: directory of the comparison
/// - `taken`: directories of the runs planned so far; the function adds the directories
///   of this run
PlannedRun plan_run(
    const std::string& recipe, const Arguments& flags, int nproc,
    const GridPoint& point, int repeats, const std::string& out,
    std::vector<std::string>& taken);

/// Executes a run and waits for its end. The output goes to output.txt in the directory
/// of the repeat with number `repeat` (from 0) below `out`. Returns a row of
/// table.json: status (done, failed or skipped) and reason, the values of summary.json,
/// and figures of the tutorial. If the run ends with a ConfigError, the status is
/// skipped, because this machine or build cannot execute the run. Throws DataError if
/// files cannot be written.
nlohmann::ordered_json run_planned(
    const PlannedRun& run, int repeat, const std::string& out);

}  // namespace tandem::app
