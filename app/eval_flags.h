#pragma once

#include <cstdint>
#include <string>

#include "app/command.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"

namespace tandem::app {

/// Options of `tandem eval` and `tandem predict`.
struct EvalOptions {
  std::string checkpoint;
  // True: the best checkpoint of the run `checkpoint`.
  bool best = false;
  // Network file; "" for the copy in the run's directory.
  std::string network;
  // True: the network file may be TorchScript that `network` does not name.
  bool trusts_scripts = false;
  // Name or path of a data set; "" for the data set of the training.
  std::string data;
  DataPart part = DataPart::test;
  int64_t limit = 0;
  int64_t batch_size = 1000;
  // True: moving averages instead of the weights.
  bool ema = false;
  // True: `tandem eval` also prints the results of each class.
  bool details = false;
  // Settings, of which only `device` is used.
  RunConfig config;
  // CSV file that `tandem predict` writes.
  std::string out;
};

/// Parses the arguments of `tandem eval`. Both programs call it: `tandem` checks that
/// this build supports the device, and tandem-worker evaluates.
EvalOptions parse_eval(const Arguments& arguments);

/// Parses the arguments of `tandem predict`, for both programs as parse_eval().
EvalOptions parse_predict(const Arguments& arguments);

}  // namespace tandem::app
