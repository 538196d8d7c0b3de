#pragma once

#include "app/command.h"
#include "tandem/config/fields.h"

namespace tandem::app {

/// Replaces aliases of flags by the names of the flags: --micro-batches by
/// --accumulate, -nr by --node-rank, --nnodes MIN:MAX by two flags. Throws ConfigError
/// if a setting is given under two names, or for an invalid MIN:MAX.
Arguments with_own_names(const Arguments& arguments);

/// Returns whether the arguments contain any of the flags, as "--flag" or
/// "--flag=value".
bool has_flag(const Arguments& arguments, const std::vector<std::string>& flags);

/// Returns the aliases of a setting that CLI11 can parse, such as
/// ",--num-machines,--nodes,-n".
std::string listed_names(const Field& field);

}  // namespace tandem::app
