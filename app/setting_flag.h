#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tandem/config/run_config.h"

namespace tandem::app {

/// Settings that, with `data`, define the samples: their sizes and their targets.
inline constexpr const char* kSampleSettings[] = {
    "target", "shape", "image_size", "block_size", "loss"};

/// Adds the flag that `tandem train` has for a setting. Parsing throws ConfigError for
/// an invalid value. `config` must outlive `app`.
CLI::Option* add_setting(CLI::App& app, RunConfig& config, const char* name);

/// Adds --model for commands that read a checkpoint: the path of its network file.
/// Parsing throws ConfigError for another value. `path` must outlive `app`.
void add_network_file(CLI::App& app, std::string& path);

}  // namespace tandem::app
