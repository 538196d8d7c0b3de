#pragma once

#include "app/command.h"
#include "tandem/train/config.h"

namespace tandem::app {

/// Reads `train`'s arguments: [RECIPE.toml] [--flags] [--set key=value]. Flags win
/// over the recipe, --set over flags. Checks the result.
RunConfig parse_train_arguments(const Arguments& arguments);

}  // namespace tandem::app
