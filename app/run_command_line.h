#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/command.h"

namespace tandem::app {

/// Returns a line "  name   help" for each command.
std::string list_commands(const std::vector<Command>& commands);

/// Implements main(): runs the command whose name is argv[1]. If the command throws an
/// error, prints the error as one line and returns its exit_code(). Otherwise, returns
/// the exit code of the command.
int run_command_line(
    int argc, char** argv, const std::vector<Command>& commands,
    const std::string& help);

/// Runs the action of `tandem COMMAND` whose name is the first argument. Passes the
/// other arguments to the action and returns its exit code. Without arguments, and for
/// --help, prints a list of the actions. Throws ConfigError for an unknown action.
int choose_action(
    const std::string& command, const std::vector<Command>& actions,
    const Arguments& arguments);

/// Runs `body`, which does the work of a rank, and returns the exit code. If `body`
/// throws and tandem's launcher started this process, reports the error to the
/// launcher, which prints one reason for the failure of the run. Otherwise, rethrows
/// the error. On several hosts, an error about files then names the rank and the host.
int run_as_rank(const std::function<void()>& body);

}  // namespace tandem::app
