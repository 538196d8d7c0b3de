#pragma once

#include <string>

namespace tandem::app {

/// The path of a recipe that an argument names. A path stays as it is. The name of a
/// recipe that was installed with this program, with or without ".toml", becomes its
/// path. Call it after parse(), which reports unknown flags: the value of such a flag
/// is parsed as a recipe.
///
/// Throws ConfigError, with the nearest name and a list of all, if there is no file or
/// recipe of that name.
std::string recipe_path(const std::string& text);

}  // namespace tandem::app
