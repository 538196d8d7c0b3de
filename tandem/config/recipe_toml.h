#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace tandem {

// Only for sources that read recipes, since it needs toml++.

/// Parses the text of a file. Throws ConfigError with `name` and line if it is not
/// TOML. The recursion of the parser grows with the number of dots in a key, so texts
/// must be small.
toml::table parse_toml(std::string_view text, const std::string& name);

/// Reads a recipe. Throws DataError if the file cannot be read, ConfigError with file
/// and line if it is not TOML.
toml::table parse_recipe(const std::string& path);

/// Returns file and line, such as "recipe.toml:3".
std::string at_line(const std::string& path, const toml::node& node);

}  // namespace tandem
