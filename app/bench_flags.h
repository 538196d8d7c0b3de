#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// What `tandem bench step` measures: whole training steps of one rank.
struct BenchStepOptions {
  // Model, data, batch size, executor, precision, device.
  RunConfig config;
  int threads = 1;
  int64_t steps = 50;
  int64_t warmup = 10;
  // Fetch batches beforehand; otherwise the loader's time is part of the step.
  bool prefetched = false;
  bool json = false;
};

/// What `tandem bench loader` measures: batches of whole epochs, one thread.
struct BenchLoaderOptions {
  RunConfig config;
  int64_t epochs = 9;
  bool json = false;
};

/// What `tandem bench optimizer` measures: one pass over an arena, one thread.
struct BenchOptimizerOptions {
  // Device.
  RunConfig config;
  std::vector<OptimizerKind> optimizers;
  // Those of `net`.
  int64_t parameters = 1'199'882;
  int64_t repeats = 41;
  bool json = false;
};

/// What `tandem bench allreduce` measures: the sum of a float32 buffer.
struct BenchAllReduceOptions {
  int nproc = 2;
  std::vector<BackendKind> backends = {BackendKind::thread, BackendKind::gloo};
  std::vector<int64_t> bytes = {4'800'000};
  int64_t repeats = 30;
  bool json = false;
  // Where rank 0 leaves its results, for the program that started it; "": it
  // prints them.
  std::string result_file;
};

/// The thin program reads the flags too: it sets threads and starts ranks.
BenchStepOptions parse_bench_step(const Arguments& arguments);
BenchLoaderOptions parse_bench_loader(const Arguments& arguments);
BenchOptimizerOptions parse_bench_optimizer(const Arguments& arguments);
BenchAllReduceOptions parse_bench_allreduce(const Arguments& arguments);

/// Runs one of these by the first argument; prints help; throws ConfigError for
/// another name.
struct BenchActions {
  int (*step)(const Arguments&);
  int (*loader)(const Arguments&);
  int (*optimizer)(const Arguments&);
  int (*allreduce)(const Arguments&);
};
int choose_bench(const Arguments& arguments, const BenchActions& actions);

}  // namespace tandem::app
