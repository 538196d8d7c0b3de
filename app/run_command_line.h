#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/command.h"

namespace tandem::app {

/// Returns a line "  name   help" for each command.
std::string list_commands(const std::vector<Command>& commands);

/// Runs the subcommand that argv names, for main(). Prints one line for an error.
/// Returns the exit code: 0 done, 1 failed, 2 misused.
int run_command_line(
    int argc, char** argv, const std::vector<Command>& commands,
    const std::string& help);

/// Runs the work of a rank. Under our launcher an error is reported to the launcher,
/// which prints the reason of a run's failure once, and the exit code is returned.
/// Otherwise the error is thrown.
int run_as_rank(const std::function<void()>& body);

}  // namespace tandem::app
