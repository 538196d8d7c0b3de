#pragma once

#include "app/command.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Parses the arguments of `launch`: [--flags] program [its arguments]. Logs the
/// environment variables of torchrun that are used as defaults of flags. Throws
/// ConfigError for invalid values of flags. launch_ranks() checks the options further.
LaunchOptions parse_launch(const Arguments& arguments);

}  // namespace tandem::app
