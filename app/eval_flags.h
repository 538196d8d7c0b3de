#pragma once

#include <cstdint>
#include <string>

#include "app/command.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// Options of `tandem eval`.
struct EvalOptions {
  std::string checkpoint;
  // Name or folder of a data set; "" for the data set of the training.
  std::string data;
  int64_t limit = 0;
  int64_t batch_size = 1000;
  // Only the setting `device` is used.
  RunConfig config;
};

/// Parses the arguments. tandem-worker evaluates with the options. `tandem` parses the
/// arguments too, to check that this build supports the device.
EvalOptions parse_eval(const Arguments& arguments);

}  // namespace tandem::app
