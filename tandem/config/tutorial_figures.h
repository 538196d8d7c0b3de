#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// What a document measured, by number of ranks; of other numbers it says nothing.
struct DocumentFigure {
  // With the recipe's own number of ranks.
  std::optional<double> own;
  std::map<int, double> by_ranks;

  /// For a run on `ranks` of a recipe for `own_ranks`.
  std::optional<double> at(int ranks, int own_ranks) const;
};

/// A recipe's [document] table: what the document that it repeats says of its own run.
/// What the document does not say is empty.
struct DocumentFigures {
  // Where it was measured.
  std::string machine;
  // Of the whole program.
  DocumentFigure seconds;
  // Percent.
  DocumentFigure test_accuracy;
  DocumentFigure train_accuracy;
  // The last losses that it prints, one for each of its ranks.
  std::vector<double> last_losses;
};

/// Reads a recipe's own [document] table; not its base's, which is another run.
///
/// Keys: machine (text), seconds or minutes, test_accuracy, train_accuracy, last_losses
/// (a list) and processes (a list). A figure is a number, of a run with the recipe's
/// own number of ranks, or a list for those in `processes`; without that, for 1, 2, ...
/// Throws ConfigError with file and line for anything else, DataError when the file
/// cannot be read.
DocumentFigures read_document(const std::string& path);

/// The path of the recipe that is to be taken where there is no GPU: what this recipe's
/// own key without_gpu names, relative to it; "" without the key. Throws as
/// read_document().
std::string read_without_gpu(const std::string& path);

/// A recipe's [scaling] table: which recipes to run (paths from the current directory),
/// with how many ranks. Such a recipe has no settings.
struct ScalingRecipe {
  std::vector<std::string> recipes;
  std::vector<int> nproc;
};

/// nullopt for a recipe without the table. Keys: recipes (texts, relative to the
/// recipe) and nproc (whole numbers). Throws as read_document().
std::optional<ScalingRecipe> read_scaling_recipe(const std::string& path);

}  // namespace tandem
