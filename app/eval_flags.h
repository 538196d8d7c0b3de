#pragma once

#include <cstdint>
#include <string>

#include "app/command.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// Options of `tandem eval`.
struct EvalOptions {
  std::string checkpoint;
  // "": the data set of the training.
  std::string data;
  int64_t limit = 0;
  int64_t batch_size = 1000;
  // Device only.
  RunConfig config;
};

/// Parses the arguments. The thin program does so too, for the device of the worker.
EvalOptions parse_eval(const Arguments& arguments);

}  // namespace tandem::app
