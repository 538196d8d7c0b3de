#pragma once

#include <string>
#include <vector>

namespace tandem::app {

/// Returns the folder of the recipes of this program: PREFIX/share/tandem/recipes,
/// if `tandem` is in PREFIX/bin or the worker is in PREFIX/libexec/tandem. A build tree
/// has a link to the recipes of its sources. Returns "" if there is no such folder.
std::string recipes_folder();

/// Returns the names of the recipes in a folder in alphabetical order, without ".toml".
std::vector<std::string> recipes_in(const std::string& folder);

/// Returns the path of a recipe. `text` is a path or the name of a recipe in
/// recipes_folder(), with or without ".toml". Old names of renamed recipes also work
/// (current_recipe()). Call it after parse(), which reports unknown flags. Otherwise,
/// the value of an unknown flag, which CLI11 parses as the recipe, would be reported
/// instead.
///
/// Returns an empty text, and a path with a slash, even if there is no such file.
/// Otherwise, throws ConfigError, with the most similar name and a list of all names,
/// if there is no such file or recipe. Also throws ConfigError for a network file.
std::string recipe_path(const std::string& text);

}  // namespace tandem::app
