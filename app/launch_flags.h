#pragma once

#include "app/command.h"
#include "app/torchrun_variables.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

struct LaunchCommand {
  LaunchOptions options;
  // The variables that are defaults of its flags.
  TorchrunVariables variables;
};

/// Reads `launch`'s arguments: [--flags] program [its arguments]. Throws ConfigError
/// for what no value of a flag can be; launch_ranks() checks the rest.
LaunchCommand parse_launch(const Arguments& arguments);

}  // namespace tandem::app
