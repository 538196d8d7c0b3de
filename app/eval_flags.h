#pragma once

#include <cstdint>
#include <string>

#include "app/command.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// What `tandem eval` evaluates, and where.
struct EvalOptions {
  std::string checkpoint;
  // "": what the model was trained on.
  std::string data;
  int64_t limit = 0;
  int64_t batch_size = 1000;
  // The device, nothing else.
  RunConfig config;
};

/// The thin program reads them too: the device decides which worker it becomes.
EvalOptions parse_eval(const Arguments& arguments);

}  // namespace tandem::app
