#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// Options of `tandem bench step`, which times training steps of one rank.
struct BenchStepOptions {
  // Settings of the steps, such as the model, the data, the optimizer and the device.
  RunConfig config;
  int threads = 1;
  int64_t steps = 50;
  int64_t warmup = 10;
  // True if batches are loaded before the measurement. Otherwise, the time of a step
  // includes loading its batch.
  bool prefetched = false;
  bool json = false;
};

/// Options of `tandem bench loader`, which times the loader over whole epochs on one
/// thread.
struct BenchLoaderOptions {
  RunConfig config;
  int64_t epochs = 9;
  bool json = false;
};

/// Options of `tandem bench optimizer`, which times an update of all parameters, on one
/// CPU thread or on a GPU.
struct BenchOptimizerOptions {
  // Settings, of which only `device` is used.
  RunConfig config;
  std::vector<OptimizerKind> optimizers;
  // Number of parameters to update. The default is the number in the model `net`.
  int64_t parameters = 1'199'882;
  int64_t repeats = 41;
  bool json = false;
};

/// Options of `tandem bench allreduce`, which times the all-reduce of a float32 buffer.
struct BenchAllReduceOptions {
  int nproc = 2;
  std::vector<BackendKind> backends = {BackendKind::thread, BackendKind::gloo};
  std::vector<int64_t> bytes = {4'800'000};
  int64_t repeats = 30;
  bool json = false;
  // File into which rank 0 writes the results for the program that started the ranks;
  // "": rank 0 prints the results.
  std::string result_file;
};

// Functions that parse the flags. They throw ConfigError. Both programs call them:
// `tandem` sets the number of threads and starts the ranks, and tandem-worker measures.
BenchStepOptions parse_bench_step(const Arguments& arguments);
BenchLoaderOptions parse_bench_loader(const Arguments& arguments);
BenchOptimizerOptions parse_bench_optimizer(const Arguments& arguments);
BenchAllReduceOptions parse_bench_allreduce(const Arguments& arguments);

/// Functions that run the actions of `tandem bench`.
struct BenchActions {
  int (*step)(const Arguments&);
  int (*loader)(const Arguments&);
  int (*optimizer)(const Arguments&);
  int (*allreduce)(const Arguments&);
};
/// Runs the action whose name is the first argument, or prints help, as choose_action()
/// does. Throws ConfigError for an unknown action.
int choose_bench(const Arguments& arguments, const BenchActions& actions);

}  // namespace tandem::app
