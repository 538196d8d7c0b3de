#pragma once

#include <toml++/toml.h>

#include <string>

namespace tandem {

// For sources that read recipes only: it needs toml++.

/// The recipe's table. Throws DataError when the file cannot be read, ConfigError with
/// file and line for what is not TOML.
toml::table parse_recipe(const std::string& path);

/// "recipe.toml:3".
std::string at_line(const std::string& path, const toml::node& node);

}  // namespace tandem
