#pragma once

#include <string>
#include <vector>

namespace tandem::app {

/// Returns the folder of the recipes that were installed with this program. If there is
/// none, returns "recipes" if the current directory contains a folder with that name,
/// as a checkout does, and otherwise "".
std::string recipes_folder();

/// Returns the names of the recipes in a folder in alphabetical order, without ".toml".
std::vector<std::string> recipes_in(const std::string& folder);

/// Returns the path of a recipe. `text` is a path or the name of an installed recipe,
/// with or without ".toml". Old names of renamed recipes also work (current_recipe()).
/// Call it after parse(). For an unknown flag, CLI11 parses the flag's value as the
/// recipe, and parse() reports the unknown flag.
///
/// Throws ConfigError, with the most similar name and a list of all names, if there is
/// no such file or recipe.
std::string recipe_path(const std::string& text);

}  // namespace tandem::app
