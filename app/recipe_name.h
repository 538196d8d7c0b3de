#pragma once

#include <string>
#include <vector>

namespace tandem::app {

/// Returns the folder of the recipes that were installed with this program, else
/// "recipes" if the current directory has such a folder, as a checkout does, else "".
std::string recipes_folder();

/// Returns the names of the recipes in a folder in alphabetical order, without ".toml".
std::vector<std::string> recipes_in(const std::string& folder);

/// Returns the path of a recipe that an argument names. A path stays as it is. The name
/// of an installed recipe, with or without ".toml", becomes its path. Old names of
/// renamed recipes work (current_recipe()). Call it after parse(): the value of an
/// unknown flag is parsed as a recipe, and parse() reports the flag.
///
/// Throws ConfigError, with the nearest name and a list of all, if there is no file or
/// recipe of that name.
std::string recipe_path(const std::string& text);

}  // namespace tandem::app
