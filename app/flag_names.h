#pragma once

#include "app/command.h"

namespace tandem::app {

/// Replaces underscores in the name of a flag by dashes; keeps the value after "=".
std::string with_dashes(std::string flag);

/// Replaces aliases of flags by the names of the flags: --batch_size by --batch-size,
/// -nr by --node-rank, --nnodes MIN:MAX by two flags. Throws ConfigError
/// if a setting is given under two names, or for an invalid MIN:MAX.
Arguments with_own_names(const Arguments& arguments);

/// Returns whether the arguments contain any of the flags, which have dashes. The
/// arguments may have underscores and values, such as "--node_rank=1" or "-t3".
bool has_flag(const Arguments& arguments, const std::vector<std::string>& flags);

}  // namespace tandem::app
