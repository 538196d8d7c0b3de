#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/command.h"

namespace tandem::app {

/// Returns a line "  name   help" for each command.
std::string list_commands(const std::vector<Command>& commands);

/// Runs the command whose name is argv[1], for main(). Prints an error as one line.
/// Returns the exit code of the command, or exit_code() of the error.
int run_command_line(
    int argc, char** argv, const std::vector<Command>& commands,
    const std::string& help);

/// Runs `body`, the work of a rank, and returns the exit code. If tandem's launcher
/// started this process, an error is reported to the launcher, which prints the reason
/// of a run's failure once. Otherwise the error is thrown.
int run_as_rank(const std::function<void()>& body);

}  // namespace tandem::app
