#include "app/bench_flags.h"

#include <algorithm>

#include "app/actions.h"
#include "app/command_line.h"
#include "app/setting_flag.h"

namespace tandem::app {

namespace {

void add_data_flags(CLI::App& app, RunConfig& config) {
  for (const char* name : {"model", "data", "batch_size"}) {
    add_setting(app, config, name);
  }
}

// --FLAG a,b,c. A name that does not exist ends parsing with a ConfigError.
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
         what + ": " + join(choice_names<E>()) + "; commas between (" +
             join(defaults, ",") + ")")
      ->delimiter(',');
}

void add_json_flag(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print one JSON object");
}

}  // namespace

BenchStepOptions parse_bench_step(const Arguments& arguments) {
  CLI::App app(
      "Times whole training steps of one rank, the loader's batch included: median "
      "and spread over --steps, after --warmup. On a GPU each is waited for.",
      "tandem bench step");
  BenchStepOptions options;
  add_data_flags(app, options.config);
  for (const char* name :
       {"executor", "precision", "channels_last", "optimizer", "device"}) {
    add_setting(app, options.config, name);
  }
  app.add_option("--threads", options.threads, "CPU threads of the rank")
      ->check(whole_number(1, 4096));
  app.add_option("--steps", options.steps, "steps to time")->check(whole_number(1));
  app.add_option("--warmup", options.warmup, "steps before them")
      ->check(whole_number(0));
  app.add_flag(
      "--prefetched", options.prefetched,
      "fetch 32 batches beforehand, not in the time");
  add_json_flag(app, options.json);
  parse(app, arguments);
  check(options.config);
  return options;
}

BenchLoaderOptions parse_bench_loader(const Arguments& arguments) {
  CLI::App app(
      "Times the loader alone, on one thread, over whole epochs of shuffled samples: "
      "computing the order, gathering and normalising.",
      "tandem bench loader");
  BenchLoaderOptions options;
  add_data_flags(app, options.config);
  app.add_option("--epochs", options.epochs, "epochs to time, after one more")
      ->check(whole_number(1));
  add_json_flag(app, options.json);
  parse(app, arguments);
  check(options.config);
  return options;
}

BenchOptimizerOptions parse_bench_optimizer(const Arguments& arguments) {
  CLI::App app(
      "Times one update of all parameters (float32, one thread) and, in turns with "
      "it, a memcpy that reads and writes as many bytes together: medians. On a GPU "
      "each figure is the mean of 20 that run one after the other.",
      "tandem bench optimizer");
  BenchOptimizerOptions options;
  for (const auto& choice : choices<OptimizerKind>()) {
    options.optimizers.push_back(choice.value);
  }
  add_choices(app, "--optimizers", options.optimizers, "which; sgd has momentum");
  add_setting(app, options.config, "device");
  app.add_option("--parameters", options.parameters, "how many; net's by default")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--repeats", options.repeats, "updates to time, after 5 more")
      ->check(whole_number(1));
  add_json_flag(app, options.json);
  parse(app, arguments);
  check(options.config);
  return options;
}

BenchAllReduceOptions parse_bench_allreduce(const Arguments& arguments) {
  CLI::App app(
      "Times all-reduce of a float32 buffer over ranks on this host, for each backend "
      "and size: median of the slowest rank's time. Ranks keep to a core each where "
      "there are enough.",
      "tandem bench allreduce");
  BenchAllReduceOptions options;
  app.add_option("--nproc", options.nproc, "ranks")->check(whole_number(1, 4096));
  add_choices(app, "--backends", options.backends, "what adds up");
  app.add_option("--bytes", options.bytes, "sizes of the buffer; commas between")
      ->delimiter(',')
      ->check(whole_number(1, 1'000'000'000'000'000));
  app.add_option("--repeats", options.repeats, "operations to time, after 5 more")
      ->check(whole_number(1));
  add_json_flag(app, options.json);
  app.add_option("--result-file", options.result_file)->group("");
  parse(app, arguments);
  const auto& backends = options.backends;
  if (std::find(backends.begin(), backends.end(), BackendKind::nccl) !=
      backends.end()) {
    throw ConfigError(
        "[bench] allreduce measures buffers in main memory, and backend nccl is for "
        "what is on GPUs; leave it out");
  }
  for (const int64_t bytes : options.bytes) {
    if (bytes % 4 != 0) {
      throw ConfigError(
          "[bench] " + std::to_string(bytes) +
          " bytes are no whole number of float32; change --bytes to a multiple of 4");
    }
  }
  return options;
}

int choose_bench(const Arguments& arguments, const BenchActions& actions) {
  return choose_action(
      "bench",
      {{"step", "", "whole training steps: forward, backward, update", actions.step},
       {"loader", "", "batches from bytes in memory, one thread", actions.loader},
       {"optimizer", "", "one update of all parameters, against a memcpy",
        actions.optimizer},
       {"allreduce", "", "sums of a buffer over ranks, by backend", actions.allreduce}},
      arguments);
}

}  // namespace tandem::app
