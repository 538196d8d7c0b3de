#include "app/bench_flags.h"

#include <algorithm>

#include "app/command_line.h"
#include "app/run_command_line.h"

namespace tandem::app {

namespace {

void add_data_flags(CLI::App& app, RunConfig& config) {
  for (const char* name : {"model", "data", "batch_size"}) {
    add_setting(app, config, name);
  }
  for (const char* name : kSampleSettings) {
    add_setting(app, config, name);
  }
}

// Adds --FLAG a,b,c. Parsing throws ConfigError for an unknown choice.
template <typename E>
void add_choices(
    CLI::App& app, const char* flag, std::vector<E>& values, const std::string& what) {
  const auto take = [&values, flag](const std::vector<std::string>& names) {
    values.clear();
    for (const auto& name : names) {
      values.push_back(parse_choice<E>(flag, name));
    }
  };
  std::vector<std::string> defaults;
  for (const E value : values) {
    defaults.emplace_back(name_of(value));
  }
  app.add_option_function<std::vector<std::string>>(
         flag, take,
         what + ", separated by commas: " + join(choice_names<E>()) +
             " (default: " + join(defaults, ",") + ")")
      ->delimiter(',');
}

void add_json_flag(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print one JSON object");
}

}  // namespace

BenchStepOptions parse_bench_step(const Arguments& arguments) {
  CLI::App app(
      "Times whole training steps of one rank, with the loader: median and spread of "
      "--steps steps, after --warmup steps. On a GPU the program waits for each step.",
      "tandem bench step");
  BenchStepOptions options;
  add_data_flags(app, options.config);
  for (const char* name :
       {"executor", "precision", "channels_last", "optimizer", "device", "freeze",
        "recompute", "memory"}) {
    add_setting(app, options.config, name);
  }
  app.add_option("--threads", options.threads, "CPU threads of the rank")
      ->check(whole_number(1, 4096));
  app.add_option("--steps", options.steps, "number of steps to time")
      ->check(whole_number(1));
  app.add_option("--warmup", options.warmup, "number of steps before the timed steps")
      ->check(whole_number(0));
  app.add_flag(
      "--prefetched", options.prefetched,
      "load 32 batches before the measurement, so that the loader is not timed");
  add_json_flag(app, options.json);
  parse(app, arguments);
  check(options.config);
  return options;
}

BenchLoaderOptions parse_bench_loader(const Arguments& arguments) {
  CLI::App app(
      "Times the loader on one thread, over whole epochs of shuffled samples: order, "
      "gathering and normalizing.",
      "tandem bench loader");
  BenchLoaderOptions options;
  add_data_flags(app, options.config);
  app.add_option(
         "--epochs", options.epochs, "number of epochs to time, after one for warm-up")
      ->check(whole_number(1));
  add_json_flag(app, options.json);
  parse(app, arguments);
  check(options.config);
  return options;
}

BenchOptimizerOptions parse_bench_optimizer(const Arguments& arguments) {
  CLI::App app(
      "Times an update of all parameters (float32, one thread) and, in turns with it, "
      "a memcpy of as many bytes, read and written: medians. On a GPU each measurement "
      "is the mean of 20 updates in a row.",
      "tandem bench optimizer");
  BenchOptimizerOptions options;
  for (const auto& choice : choices<OptimizerKind>()) {
    options.optimizers.push_back(choice.value);
  }
  add_choices(app, "--optimizers", options.optimizers, "optimizers (sgd has momentum)");
  add_setting(app, options.config, "device");
  app.add_option(
         "--parameters", options.parameters,
         "number of parameters (default: those of net)")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option(
         "--repeats", options.repeats, "number of updates to time, after 5 for warm-up")
      ->check(whole_number(1));
  add_json_flag(app, options.json);
  parse(app, arguments);
  check(options.config);
  return options;
}

BenchAllReduceOptions parse_bench_allreduce(const Arguments& arguments) {
  CLI::App app(
      "Times all-reduce of a float32 buffer over ranks on this host, for each backend "
      "and size: median time of the slowest rank. If there are enough cores, each rank "
      "is pinned to one.",
      "tandem bench allreduce");
  BenchAllReduceOptions options;
  app.add_option("--nproc", options.nproc, "number of ranks")
      ->check(whole_number(1, 4096));
  add_choices(app, "--backends", options.backends, "backends");
  app.add_option(
         "--bytes", options.bytes, "sizes of the buffer in bytes, separated by commas")
      ->delimiter(',')
      ->check(whole_number(1, 1'000'000'000'000'000));
  app.add_option(
         "--repeats", options.repeats,
         "number of operations to time, after 5 for warm-up")
      ->check(whole_number(1));
  add_json_flag(app, options.json);
  app.add_option("--result-file", options.result_file)->group("");
  parse(app, arguments);
  const auto& backends = options.backends;
  if (std::find(backends.begin(), backends.end(), BackendKind::nccl) !=
      backends.end()) {
    throw ConfigError(
        "[bench] backend is nccl, which is for GPUs, but allreduce measures main "
        "memory; leave it out");
  }
  for (const int64_t bytes : options.bytes) {
    if (bytes % 4 != 0) {
      throw ConfigError(
          "[bench] bytes is " + std::to_string(bytes) +
          ", expected a multiple of 4; change --bytes");
    }
  }
  return options;
}

int choose_bench(const Arguments& arguments, const BenchActions& actions) {
  return choose_action(
      "bench",
      {{"step", "training steps: forward, backward, update", actions.step},
       {"loader", "batches from bytes in memory, on one thread", actions.loader},
       {"optimizer", "an update of all parameters, and a memcpy", actions.optimizer},
       {"allreduce", "all-reduce of a buffer over ranks, by backend",
        actions.allreduce}},
      arguments);
}

}  // namespace tandem::app
