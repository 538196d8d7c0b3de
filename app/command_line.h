#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// Exception that parse() throws after it has printed the text of a flag such as
/// --help.
struct HelpShown {};

/// Returns the error of a command whose output could not be written, from an errno.
DataError cannot_write_output(int reason);

/// Flushes standard output. Throws DataError if it could not be written.
void check_output();

/// Functions that return a CLI11 validator, which checks that a value is a number from
/// `least` to `most`.
CLI::Validator whole_number(int64_t least, int64_t most = 1'000'000'000);
CLI::Validator number(double least, double most);

/// Parses arguments with CLI11. Throws HelpShown for --help and --describe. Throws
/// ConfigError for invalid arguments; for an unknown flag, the error names the most
/// similar flag.
void parse(CLI::App& app, const Arguments& arguments);

/// Settings that, with `data`, define the samples: their sizes and their targets.
inline constexpr const char* kSampleSettings[] = {
    "target", "columns", "categories", "shape", "image_size", "block_size", "loss"};

/// Help of --best, for commands with --checkpoint.
inline constexpr const char* kBestHelp =
    "use the run's checkpoint with the lowest validation loss (test loss without "
    "--validation) instead of its newest";

/// Adds the flag that `tandem train` has for a setting. Parsing throws ConfigError for
/// an invalid value. `config` must outlive `app`.
CLI::Option* add_setting(CLI::App& app, RunConfig& config, const char* name);

/// Adds --model for commands that read a checkpoint: the path of its network file.
/// Parsing throws ConfigError for another value. `path` must outlive `app`.
void add_network_file(CLI::App& app, std::string& path);

/// Adds --trust. `trusts` must outlive `app`.
void add_trust(CLI::App& app, bool& trusts);

}  // namespace tandem::app
