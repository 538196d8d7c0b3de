#pragma once

#include <CLI/CLI.hpp>

namespace tandem::app {

/// For Option::transform: a recipe's path stays as it is; the name of one that was
/// installed with this program, with or without ".toml", becomes its path. Throws
/// DataError, which names the nearest and their folder, for what is neither.
CLI::Validator recipe_name();

}  // namespace tandem::app
