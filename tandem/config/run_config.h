#pragma once

#include <string>

#include "tandem/config/options/comm_options.h"
#include "tandem/config/options/data_options.h"
#include "tandem/config/options/exec_options.h"
#include "tandem/config/options/model_options.h"
#include "tandem/config/options/optimizer_options.h"
#include "tandem/config/options/output_options.h"
#include "tandem/config/options/rank_options.h"
#include "tandem/config/options/schedule_options.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/config/options/training_options.h"

namespace tandem {

/// All settings of a training run, in the structs that its parts use. Name, range and
/// meaning of a setting are written once, in describe() of its struct, from which
/// fields.h makes recipes, flags, help and checks. It needs no LibTorch, so the thin
/// program uses it too.
struct RunConfig {
  // Name of the run in tables and reports.
  std::string name = "run";
  DataOptions data;
  ModelSettings model;
  TrainingOptions training;
  OptimizerOptions optimizer = {OptimizerKind::adadelta};
  LrScheduleOptions schedule;
  StrategyOptions strategy;
  ExecOptions exec;
  CommOptions comm;
  RankOptions ranks;
  OutputOptions output;

  /// Returns ranks.nproc, or the number of usable CPUs.
  int num_ranks_here() const;
  /// Returns whether mpirun has to start the ranks.
  bool needs_mpirun() const;
};

/// Returns all settings as a recipe that repeats the run.
[[nodiscard]] std::string to_toml(const RunConfig& config);

/// Checks all settings. Throws ConfigError for a number out of range, a setting that
/// the other settings do not use, or settings that contradict each other.
void check(const RunConfig& config);

/// Reads a recipe (TOML) into `config`. Settings that the recipe does not have stay
/// unchanged. A recipe may name another recipe as its `base`, relative to its own
/// folder, which is read first.
///
/// Throws DataError if the file cannot be read, ConfigError with file and line for an
/// error in it.
void read_recipe(RunConfig& config, const std::string& path);

/// Returns the path of a recipe, or its new path if the file was renamed: "ddp.toml" in
/// the folder of "003-ddp.toml" if only the former exists.
[[nodiscard]] std::string current_recipe(const std::string& path);

/// Returns a JSON schema (draft 7) of recipes, for editors.
[[nodiscard]] std::string recipe_schema();

}  // namespace tandem
