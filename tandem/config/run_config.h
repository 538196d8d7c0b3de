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

/// All settings of a training run, grouped in the structs that tandem's factories
/// accept. describe() of each struct defines name, range and help of its settings.
/// fields.h derives recipes, flags, help and checks from these definitions. This header
/// does not need LibTorch, so the program `tandem`, which does not link LibTorch, can
/// include it.
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

  /// Returns the number of ranks on this host: ranks.nproc, or the number of usable
  /// CPUs if nproc is kPerCpu.
  int num_ranks_here() const;
  /// Returns whether the ranks must be started by mpirun.
  bool needs_mpirun() const;
};

/// Returns all settings as the text of a recipe, which repeats the run.
[[nodiscard]] std::string to_toml(const RunConfig& config);

/// Checks all settings. Throws ConfigError for a number out of range, a setting that
/// has no effect with the other settings, or settings that contradict each other.
void check(const RunConfig& config);

/// Throws ConfigError if label_smoothing is set and the loss in use, which has the name
/// `loss`, is not cross_entropy.
void check_label_smoothing(const ModelSettings& model, const std::string& loss);

/// Maximum size of a recipe. The parser's recursion depth grows with the number of dots
/// in a key; a text of this size cannot exhaust the stack.
constexpr size_t kMostRecipeBytes = 1 << 16;

/// Reads a recipe (TOML) into `config`. Settings that the recipe does not contain stay
/// unchanged. A recipe may have a `base`, another recipe that is read first; its path
/// is relative to the folder of the recipe.
///
/// Throws DataError if the file cannot be read, ConfigError with file and line for an
/// error in it.
void read_recipe(RunConfig& config, const std::string& path);

/// Reads the text of a recipe, of at most kMostRecipeBytes bytes. `path` is the path of
/// its file, for errors and for the path of a `base`. Throws as read_recipe().
void read_recipe_text(
    RunConfig& config, const std::string& text, const std::string& path);

/// Returns the path of a recipe, or its new path if tandem has renamed the recipe. For
/// example, returns "ddp.toml" for "003-ddp.toml" if only "ddp.toml" exists.
[[nodiscard]] std::string current_recipe(const std::string& path);

/// Returns a JSON schema (draft 7) of recipes, for editors.
[[nodiscard]] std::string recipe_schema();

}  // namespace tandem
