#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// A figure that a tutorial prints, by number of ranks.
struct TutorialFigure {
  // For the recipe's own number of ranks.
  std::optional<double> own;
  std::map<int, double> by_ranks;

  /// Returns the figure for a run on `ranks` ranks of a recipe for `own_ranks`, or
  /// nullopt if the tutorial has none.
  std::optional<double> at(int ranks, int own_ranks) const;
};

/// Figures of a tutorial, from a recipe's [tutorial] table. Members are empty if the
/// tutorial does not print the figure.
struct TutorialFigures {
  // The machine that the tutorial used.
  std::string machine;
  // Seconds of the whole program.
  TutorialFigure seconds;
  // Percent.
  TutorialFigure test_accuracy;
  TutorialFigure train_accuracy;
  // The last printed loss of each rank.
  std::vector<double> last_losses;
};

/// Reads the [tutorial] table of a recipe, or its old name [document]. The table of its
/// base is ignored, because the base is another run.
///
/// Keys: number (text), machine (text), seconds or minutes, test_accuracy,
/// train_accuracy, last_losses (a list) and processes (a list). A figure is a number,
/// for a run with the recipe's own number of ranks, or a list: one figure for each
/// number of ranks in `processes`, by default 1, 2, 3 and so on.
///
/// Throws ConfigError with file and line for other keys or values, DataError if the
/// file cannot be read.
TutorialFigures read_tutorial_figures(const std::string& path);

/// Row of a list of recipes.
struct RecipeSummary {
  // Number of the tutorial, such as "003"; "" if the recipe names none.
  std::string tutorial;
  // One sentence; "" without the key `description`.
  std::string description;
};

/// Reads `tutorial`, a text or a table with the text `number`, and `description`; the
/// keys of the base are ignored. Throws as read_tutorial_figures().
RecipeSummary read_recipe_summary(const std::string& path);

/// Returns the path of the recipe to use if there is no GPU: the key without_gpu of
/// this recipe, relative to its folder; "" without the key. The key of the base is
/// ignored. Throws as read_tutorial_figures().
std::string read_without_gpu(const std::string& path);

/// The [scaling] table of a recipe that has no settings: recipes to run, as paths from
/// the current directory, and numbers of ranks.
struct ScalingRecipe {
  std::vector<std::string> recipes;
  std::vector<int> nproc;
};

/// Reads the table; returns nullopt for a recipe without it. Keys: recipes (texts,
/// relative to the folder of the recipe) and nproc (whole numbers). Throws as
/// read_tutorial_figures().
std::optional<ScalingRecipe> read_scaling_recipe(const std::string& path);

}  // namespace tandem
