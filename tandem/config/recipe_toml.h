#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace tandem {

// Include this header only in sources that read recipes, because it includes toml++.

/// Parses the text of a file. Throws ConfigError with `name` and the line if the text
/// is not TOML. The parser's recursion depth grows with the number of dots in a key, so
/// the text must be short.
toml::table parse_toml(std::string_view text, const std::string& name);

/// Reads a recipe. Throws DataError if the file cannot be read, ConfigError with file
/// and line if it is not TOML.
toml::table parse_recipe(const std::string& path);

/// Returns the path of another recipe that the recipe `path` names, relative to its
/// folder. The other recipe may have been renamed (current_recipe()).
std::string named_recipe(const std::string& path, const std::string& name);

/// Returns the file and line of a node, such as "recipe.toml:3".
std::string at_line(const std::string& path, const toml::node& node);

}  // namespace tandem
