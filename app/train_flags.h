#pragma once

#include <string>

#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/config/fields.h"

namespace tandem::app {

/// Results of parse_train_arguments() that are not settings of the run.
struct TrainExtras {
  // Settings of the resumed run that parse_train_arguments() used.
  EarlierSettings earlier;
  // Settings of the recipe that have no effect, because a resumed run keeps its earlier
  // settings (kept_settings()); "" for none.
  std::string kept;
  // The flag --fetch. It is not a setting of recipes and config.toml, because it
  // applies only to this host and this start.
  bool fetch = false;
  // Recipe to use if there is no GPU; "" if the recipe names none.
  std::string without_gpu;
};

/// Calls `find`, which selects a device, and returns its result. If `find` throws
/// ConfigError, adds the recipe to use without a GPU to the message.
template <typename Find>
auto find_device(const TrainExtras& extras, const Find& find) {
  try {
    return find();
  } catch (const ConfigError& error) {
    if (extras.without_gpu.empty()) {
      throw;
    }
    throw ConfigError(
        std::string(error.what()) + "; without a GPU use the recipe " +
        extras.without_gpu);
  }
}

/// Parses the arguments of `train`: [RECIPE.toml] [--flags] [--set key=value]. Flags
/// override the recipe, and --set overrides flags. On several hosts without another
/// launcher, MASTER_ADDR and MASTER_PORT override the recipe, and flags override these
/// variables. A resumed run starts from its own config.toml instead of the recipe
/// (checkpoint/resume_settings.h). Checks the resulting settings. Throws ConfigError
/// for invalid arguments or settings, and DataError if a file cannot be read.
///
/// The content of config.toml is `earlier` or, if `earlier` is null, that of the file
/// in the run's directory on this host. After a restart, ranks other than rank 0 do not
/// read the file, because --out may be the directory of another run on their hosts.
RunConfig parse_train_arguments(
    const Arguments& arguments, TrainExtras* extras = nullptr,
    const EarlierSettings* earlier = nullptr);

}  // namespace tandem::app
