#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// A recipe's [document] table: what the document that it repeats says of its own
/// run. Nothing that it does not say.
struct DocumentFigures {
  // Where it was measured, "" when the document does not tell.
  std::string machine;
  // Of the whole program.
  std::optional<double> seconds;
  // Percent.
  std::optional<double> test_accuracy;
  std::optional<double> train_accuracy;
  // Processes and the seconds they took together, from `processes` and `minutes`.
  std::vector<std::pair<int, double>> scaling;

  bool empty() const {
    return !seconds && !test_accuracy && !train_accuracy && scaling.empty();
  }
};

/// Reads a recipe's own [document] table; not its base's, which is another run.
///
/// Keys: machine (text), seconds, test_accuracy, train_accuracy (numbers),
/// processes and minutes (lists of one length; without processes, 1, 2, ...). Throws ConfigError with file and
/// line for anything else, DataError when the file cannot be read.
DocumentFigures read_document(const std::string& path);

/// A recipe's [scaling] table: which recipes to run (paths as given to a program
/// started here), with how many ranks. Such a recipe has no settings.
struct ScalingRecipe {
  std::vector<std::string> recipes;
  std::vector<int> nproc;
};

/// Nothing for a recipe without the table. Keys: recipes (texts, relative to the
/// recipe) and nproc (whole numbers). Throws as read_document().
std::optional<ScalingRecipe> read_scaling_recipe(const std::string& path);

}  // namespace tandem
