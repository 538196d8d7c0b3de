#pragma once

#include "app/command.h"
#include "tandem/config/fields.h"

namespace tandem::app {

/// Reads `train`'s arguments: [RECIPE.toml] [--flags] [--set key=value]. Flags win
/// over the recipe, --set over flags. For several hosts, where no launcher started us,
/// MASTER_ADDR and MASTER_PORT win over the recipe, and flags over them. Checks the
/// result.
///
/// A run that goes on starts from its own config.toml instead of the recipe
/// (checkpoint/resume_settings.h). `kept` becomes what it keeps although the recipe
/// says otherwise, "" without such.
RunConfig parse_train_arguments(
    const Arguments& arguments, std::string* kept = nullptr);

}  // namespace tandem::app
