#pragma once

#include "app/command.h"

namespace tandem::app {

/// An action of a command, which is run as `tandem COMMAND NAME ...`.
struct Action {
  const char* name;
  // Required arguments, such as "DIR --out FILE".
  const char* usage;
  const char* help;
  int (*run)(const Arguments&);
};

/// Runs the action whose name is the first argument. Passes the other arguments to the
/// action and returns its exit code. Without arguments, and for --help, prints a list
/// of the actions. Throws ConfigError for an unknown action.
int choose_action(
    const std::string& command, const std::vector<Action>& actions,
    const Arguments& arguments);

}  // namespace tandem::app
