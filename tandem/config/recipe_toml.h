#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace tandem {

// For sources that read recipes only: it needs toml++.

/// The table of a file's text. Throws ConfigError with `name` and line for what is no
/// TOML. Small texts only: the parser's recursion grows with the dots in a key.
toml::table parse_toml(std::string_view text, const std::string& name);

/// The recipe's table. Throws DataError when the file cannot be read, ConfigError with
/// file and line for what is not TOML.
toml::table parse_recipe(const std::string& path);

/// "recipe.toml:3".
std::string at_line(const std::string& path, const toml::node& node);

}  // namespace tandem
