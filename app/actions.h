#pragma once

#include "app/command.h"

namespace tandem::app {

/// One of the things that a command does: `tandem COMMAND NAME ...`.
struct Action {
  const char* name;
  // What follows the name, such as "DIR --out FILE"; "" where nothing must.
  const char* usage;
  const char* help;
  int (*run)(const Arguments&);
};

/// Runs the action that the first argument names, on the others, and returns its exit
/// code. Without arguments, or for --help, prints what there is. Throws ConfigError for
/// another name.
int choose_action(
    const std::string& command, const std::vector<Action>& actions,
    const Arguments& arguments);

}  // namespace tandem::app
