#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/base/process.h"
#include "tandem/config/run_config.h"
#include "tandem/config/tutorial_figures.h"

namespace tandem::app {

/// What `compare` and `scaling` set in every recipe that they run.
struct RunOverrides {
  std::string data;
  // Negative: the recipe's own.
  int64_t limit = -1;
  int64_t epochs = -1;
  // key=value.
  std::vector<std::string> assignments;
};

/// A recipe about to be run, as `tandem train RECIPE ...` would.
struct PlannedRun {
  // Its directory's name, and what tables call it.
  std::string name;
  std::string recipe;
  // Of each repeat, below the directory of the whole comparison; its name first.
  std::vector<std::string> directories;
  // But --out, which is another for each repeat.
  Arguments train_arguments;
  RunConfig config;
  TutorialFigures tutorial;
  // Of the recipe itself, whatever flags say.
  RunConfig recipe_config;
  // Set in its environment.
  Variables variables;
  // Why it is not run, "" when it is.
  std::string obstacle;
};

/// Reads a recipe. nproc: 0 for the recipe's own. `taken`: directories of runs before
/// it, to which its own are added. Throws as `tandem train` does for a recipe or
/// setting that is wrong.
PlannedRun plan_run(
    const std::string& recipe, const RunOverrides& overrides, int nproc, int repeats,
    const std::string& out, std::vector<std::string>& taken);

/// The command that runs it: `tandem train ...`, by mpirun where the recipe says so.
std::vector<std::string> command_of(
    const PlannedRun& run, const std::string& directory);

/// Runs it to its end, output to output.txt in the directory of this repeat (from 0)
/// below `out`. Returns its row of
/// table.json: status (done, failed, skipped) and reason, the values of its
/// summary.json, the tutorial's figures. A ConfigError, for a setting that cannot be on
/// this machine or in this build, is a reason to skip. Throws DataError when nothing
/// can be written.
nlohmann::ordered_json run_planned(
    const PlannedRun& run, int repeat, const std::string& out);

}  // namespace tandem::app
