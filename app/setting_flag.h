#pragma once

#include <CLI/CLI.hpp>

#include "tandem/config/run_config.h"

namespace tandem::app {

/// Adds the flag of one setting, as `tandem train` has it. A value that cannot be ends
/// parsing with a ConfigError. `config` outlives `app`.
CLI::Option* add_setting(CLI::App& app, RunConfig& config, const char* name);

}  // namespace tandem::app
