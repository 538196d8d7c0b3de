#pragma once

#include "tandem/launch/launcher.h"

namespace tandem::app {

/// launch() for a command: what went wrong first is not printed here but thrown, and
/// told as every error of the program is. Throws ConfigError if the ranks were misused,
/// StoppedError if a signal stopped them and they saved, else Error.
void start_ranks(const LaunchOptions& options);

}  // namespace tandem::app
