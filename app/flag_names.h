#pragma once

#include "app/command.h"
#include "tandem/config/fields.h"

namespace tandem::app {

/// The arguments with our own flags for the other names that they have (--accumulate
/// for --micro-batches, --node-rank for -nr). Throws ConfigError when a setting is
/// given by two names.
Arguments with_own_names(const Arguments& arguments);

/// Returns whether the arguments have one of the flags, as "--flag" or "--flag=value".
bool has_flag(const Arguments& arguments, const std::vector<std::string>& flags);

/// ",--num-machines,--nodes,-n": a setting's other names, as CLI11 takes them.
std::string listed_names(const Field& field);

}  // namespace tandem::app
