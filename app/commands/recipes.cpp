#include <fmt/core.h>

#include "app/command_line.h"
#include "app/recipe_name.h"
#include "tandem/config/tutorial_figures.h"

namespace tandem::app {

int run_recipes(const Arguments& arguments) {
  CLI::App app(
      "Lists recipes: the name, the number of the tutorial that the recipe repeats, "
      "and its purpose. tandem train NAME runs a recipe of this program, tandem train "
      "FOLDER/NAME.toml any other.",
      "tandem recipes");
  std::string folder;
  app.add_option(
      "folder", folder, "folder of recipes (default: the recipes of this program)");
  parse(app, arguments);
  if (folder.empty()) {
    folder = recipes_folder();
  }
  if (folder.empty()) {
    throw ConfigError(
        "[recipes] this program has no recipes, expected them in "
        "../share/tandem/recipes; "
        "name a folder of recipes, or install tandem again");
  }
  for (const auto& name : recipes_in(folder)) {
    const RecipeSummary recipe = read_recipe_summary(folder + "/" + name + ".toml");
    fmt::print(
        "{:<21} {:<4} {}\n", name, recipe.tutorial.empty() ? "-" : recipe.tutorial,
        recipe.description);
  }
  return 0;
}

}  // namespace tandem::app
