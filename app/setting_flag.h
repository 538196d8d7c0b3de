#pragma once

#include <CLI/CLI.hpp>

#include "tandem/config/run_config.h"

namespace tandem::app {

/// Adds the flag that `tandem train` has for a setting. Parsing throws ConfigError for
/// an invalid value. `config` must outlive `app`.
CLI::Option* add_setting(CLI::App& app, RunConfig& config, const char* name);

}  // namespace tandem::app
