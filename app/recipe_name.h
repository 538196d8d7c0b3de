#pragma once

#include <string>

namespace tandem::app {

/// Returns the path of a recipe that an argument names. A path stays as it is. The name
/// of a recipe that was installed with this program, with or without ".toml", becomes
/// its path. Call it after parse(): the value of an unknown flag is parsed as a recipe,
/// and parse() reports the flag.
///
/// Throws ConfigError, with the nearest name and a list of all, if there is no file or
/// recipe of that name.
std::string recipe_path(const std::string& text);

}  // namespace tandem::app
