#pragma once

#include "app/command.h"
#include "app/torchrun_variables.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Parsed arguments of `tandem launch`.
struct LaunchCommand {
  LaunchOptions options;
  // Environment variables of torchrun, which are the defaults of the flags.
  TorchrunVariables variables;
};

/// Parses the arguments of `launch`: [--flags] program [its arguments]. Throws
/// ConfigError for invalid values of flags. launch_ranks() checks the options further.
LaunchCommand parse_launch(const Arguments& arguments);

}  // namespace tandem::app
