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

/// Every setting of a training run, in the structs that its parts take. A setting's
/// name, range and meaning are written once, in its struct's describe(), from which
/// fields.h makes recipes, flags, help and checks. Needs no LibTorch, so the thin
/// program can use it too.
struct RunConfig {
  // What tables and reports call the run.
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

  /// ranks.nproc, or the usable CPUs.
  int num_ranks_here() const;
  /// Whether mpirun has to start the ranks.
  bool needs_mpirun() const;
};

/// The whole config as a recipe that repeats the run.
[[nodiscard]] std::string to_toml(const RunConfig& config);

/// Throws ConfigError for a number out of range, a setting that means nothing beside
/// the others, or settings that contradict each other.
void check(const RunConfig& config);

/// Reads a recipe (TOML) over `config`. A recipe may name another as its `base`,
/// relative to itself, which is read first.
///
/// Throws DataError when the file cannot be read, ConfigError with file and line
/// for what is wrong in it.
void read_recipe(RunConfig& config, const std::string& path);

/// Returns the path of a recipe, or its new path if the file was renamed: "ddp.toml" in
/// the folder of "003-ddp.toml" if only the former exists.
[[nodiscard]] std::string current_recipe(const std::string& path);

/// A JSON schema (draft 7) of recipes, for editors.
[[nodiscard]] std::string recipe_schema();

}  // namespace tandem
