#pragma once

#include <string>

#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/config/fields.h"

namespace tandem::app {

/// What `train`'s arguments say beside the run's settings.
struct TrainExtras {
  // What a run that goes on keeps although the recipe says otherwise, "" without such.
  std::string kept;
  // --fetch. About what this host lacks now: no setting, so no recipe and no
  // config.toml has it, and hosts and resumes may differ.
  bool fetch = false;
  // The recipe to take where there is no GPU, "" where the recipe names none.
  std::string without_gpu;
};

/// What `find` returns, which looks for a device. Where it refuses, the error also
/// names the recipe to take without a GPU.
template <typename Find>
auto find_device(const TrainExtras& extras, const Find& find) {
  try {
    return find();
  } catch (const ConfigError& error) {
    if (extras.without_gpu.empty()) {
      throw;
    }
    throw ConfigError(
        std::string(error.what()) + "; without a GPU take the recipe " +
        extras.without_gpu);
  }
}

/// Reads `train`'s arguments: [RECIPE.toml] [--flags] [--set key=value]. Flags win
/// over the recipe, --set over flags. For several hosts, where no launcher started us,
/// MASTER_ADDR and MASTER_PORT win over the recipe, and flags over them. Checks the
/// result. A run that goes on starts from its own config.toml instead of the recipe
/// (checkpoint/resume_settings.h).
RunConfig parse_train_arguments(
    const Arguments& arguments, TrainExtras* extras = nullptr);

}  // namespace tandem::app
