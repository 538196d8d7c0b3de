#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/command.h"

namespace tandem::app {

/// Flag with which every command prints its description as JSON. From this JSON,
/// packaging/pages generates manual pages and shell completion. The help does not list
/// the flag.
constexpr const char* kDescribeFlag = "--describe";

/// Returns a description of a command as JSON: name, description and options. Each
/// option has names, help, group, default, choices with their help, and the kind of its
/// value. A positional argument has no names; `place` is its name. The kinds are word
/// (one of the choices), number (or a choice), list (of choices), data (a choice or a
/// folder), file, recipe, program, and "" for a switch.
std::string describe(const CLI::App& app);

/// Returns a list of the commands of a program, or of the actions of a command, as
/// JSON.
std::string describe(const std::string& name, const std::vector<Command>& commands);

}  // namespace tandem::app
