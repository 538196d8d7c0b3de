#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/base/process.h"
#include "tandem/config/run_config.h"
#include "tandem/config/tutorial_figures.h"

namespace tandem::app {

/// Settings that `compare` and `scaling` override in every recipe.
struct RunOverrides {
  std::string data;
  // Negative: the recipe's value.
  int64_t limit = -1;
  int64_t epochs = -1;
  // key=value.
  std::vector<std::string> assignments;
};

/// A run of a recipe, as by `tandem train RECIPE ...`.
struct PlannedRun {
  // Name in tables, and of the directory of the first repeat.
  std::string name;
  std::string recipe;
  // Directory of each repeat, below that of the comparison.
  std::vector<std::string> directories;
  // Without --out, which differs between repeats.
  Arguments train_arguments;
  RunConfig config;
  TutorialFigures tutorial;
  // Settings of the recipe without flags.
  RunConfig recipe_config;
  // Environment of the run.
  Variables variables;
  // Reason to skip the run, or "".
  std::string obstacle;
};

/// Reads a recipe. `nproc`: 0 for the recipe's value. `taken`: directories of earlier
/// runs; adds those of this run. Throws as `tandem train` for an error in the recipe or
/// in a setting.
PlannedRun plan_run(
    const std::string& recipe, const RunOverrides& overrides, int nproc, int repeats,
    const std::string& out, std::vector<std::string>& taken);

/// Returns the command of a run: `tandem train ...`, under mpirun if the recipe needs
/// it.
std::vector<std::string> command_of(
    const PlannedRun& run, const std::string& directory);

/// Executes a run and waits for its end. The output goes to output.txt in the directory
/// of this repeat (from 0) below `out`. Returns a row of table.json: status (done,
/// failed or skipped) and reason, the values of summary.json, and figures of the
/// tutorial. If the run ends with a ConfigError, because this machine or build cannot
/// run it, the status is skipped. Throws DataError if files cannot be written.
nlohmann::ordered_json run_planned(
    const PlannedRun& run, int repeat, const std::string& out);

}  // namespace tandem::app
