#pragma once

#include "app/command.h"
#include "app/torchrun_variables.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Parsed arguments of `tandem launch`.
struct LaunchCommand {
  LaunchOptions options;
  // Variables that were used as defaults of flags.
  TorchrunVariables variables;
};

/// Parses the arguments of `launch`: [--flags] program [its arguments]. Throws
/// ConfigError for wrong values of flags; launch_ranks() checks the rest.
LaunchCommand parse_launch(const Arguments& arguments);

}  // namespace tandem::app
