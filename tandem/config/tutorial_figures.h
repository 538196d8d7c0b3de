#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// A figure that a tutorial reports, such as an accuracy, for one or more numbers of
/// ranks.
struct TutorialFigure {
  // Value for the number of ranks in the recipe, if the tutorial reports it.
  std::optional<double> own;
  std::map<int, double> by_ranks;

  /// Returns the value for `ranks` ranks, or nullopt if the tutorial does not report
  /// it. `own_ranks` is the number of ranks in the recipe.
  std::optional<double> at(int ranks, int own_ranks) const;
};

/// Figures that a tutorial reports, from a recipe's [tutorial] table. A member is empty
/// if the tutorial does not report that figure.
struct TutorialFigures {
  // Machine on which the tutorial's figures were measured.
  std::string machine;
  // Time of the whole program, in seconds.
  TutorialFigure seconds;
  // Accuracies, in percent.
  TutorialFigure test_accuracy;
  TutorialFigure train_accuracy;
  // Last printed loss of each rank.
  std::vector<double> last_losses;
};

/// Reads the [tutorial] table of a recipe, or its old name [document]. The table of the
/// recipe's `base` (read_recipe()) is ignored, because the base is another run.
///
/// Keys: number (text), machine (text), seconds or minutes, test_accuracy,
/// train_accuracy, last_losses (a list) and processes (a list). A figure is either a
/// number, for a run with the recipe's number of ranks, or a list. A list has one value
/// for each number of ranks in `processes`, by default 1, 2, 3 and so on.
///
/// Throws ConfigError with file and line for other keys or values, DataError if the
/// file cannot be read.
TutorialFigures read_tutorial_figures(const std::string& path);

/// Description of a recipe, for a list of recipes.
struct RecipeSummary {
  // Number of the tutorial, such as "003"; "" if the recipe names none.
  std::string tutorial;
  // One sentence about the recipe; "" if the recipe has no key `description`.
  std::string description;
};

/// Reads the keys `tutorial` (a text, or a table with the text `number`) and
/// `description` of a recipe. Ignores the keys of the recipe's `base`. Throws the
/// errors of read_tutorial_figures().
RecipeSummary read_recipe_summary(const std::string& path);

/// Returns the path of the recipe to use instead of the recipe `path` if there is no
/// GPU; "" if there is no such recipe. The key without_gpu of `path` contains this
/// path, relative to the folder of `path`. Ignores the key of the recipe's `base`.
/// Throws the errors of read_tutorial_figures().
std::string read_without_gpu(const std::string& path);

/// Content of the [scaling] table of a recipe: recipes to run, as paths from the
/// current directory, and numbers of ranks. Such a recipe has no settings.
struct ScalingRecipe {
  std::vector<std::string> recipes;
  std::vector<int> nproc;
};

/// Reads the [scaling] table, or returns nullopt if the recipe has no such table. Its
/// keys are `recipes` (texts, paths relative to the folder of the recipe) and `nproc`
/// (whole numbers). Throws the errors of read_tutorial_figures().
std::optional<ScalingRecipe> read_scaling_recipe(const std::string& path);

}  // namespace tandem
