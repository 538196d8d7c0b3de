#pragma once

#include <string>
#include <vector>

#include "tandem/config/options/device_choice.h"

namespace tandem::app {

/// Arguments after the name of the command.
using Arguments = std::vector<std::string>;

/// A command, which is run as `tandem NAME ...`, or an action of a command, which is
/// run as `tandem COMMAND NAME ...`. The function `run` returns the exit code. It may
/// throw errors, which run_command_line() prints.
struct Command {
  const char* name;
  const char* help;
  int (*run)(const Arguments&);
  // Required arguments of an action, such as "DIR --out FILE".
  const char* usage = "";
};

// Commands that start in `tandem`, which does not link LibTorch.
int run_train(const Arguments& arguments);
int run_launch(const Arguments& arguments);
int run_top(const Arguments& arguments);
int run_doctor(const Arguments& arguments);
int run_bench(const Arguments& arguments);
int run_compare(const Arguments& arguments);
int run_scaling(const Arguments& arguments);
int run_recipes(const Arguments& arguments);
int run_plan(const Arguments& arguments);
int run_report(const Arguments& arguments);
// Commands for which `tandem` replaces itself with tandem-worker, which links LibTorch.
int run_eval(const Arguments& arguments);
int run_predict(const Arguments& arguments);
int run_data(const Arguments& arguments);
int run_export(const Arguments& arguments);
int run_model(const Arguments& arguments);

/// Returns the path of tandem-worker for a run on `device`.
///
/// Throws ConfigError if `device` is cuda but this build has no CUDA, and DataError if
/// tandem-worker is missing.
std::string worker_path(const DeviceChoice& device = {DeviceChoice::Kind::cpu});

/// Returns the command line of tandem-worker: `command`, such as {"bench", "step"}, and
/// then `arguments`. Throws as worker_path() does.
std::vector<std::string> worker_command(
    const Arguments& command, const Arguments& arguments,
    const DeviceChoice& device = {DeviceChoice::Kind::cpu});

// Commands of tandem-worker.
int work_train(const Arguments& arguments);
int work_eval(const Arguments& arguments);
int work_predict(const Arguments& arguments);
int work_data(const Arguments& arguments);
int work_export(const Arguments& arguments);
int work_model(const Arguments& arguments);
int work_bench(const Arguments& arguments);
int work_doctor(const Arguments& arguments);

}  // namespace tandem::app
