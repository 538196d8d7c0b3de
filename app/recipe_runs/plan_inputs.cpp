#include "app/recipe_runs/plan_inputs.h"

#include <fmt/core.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/bench_spread.h"
#include "app/report/row_values.h"
#include "app/report/run_report.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/text.h"
#include "tandem/config/run_config.h"
#include "tandem/launch/failure_file.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr int kMostNodes = 1'000'000;
constexpr double kBenchTimeoutSeconds = 600;

// Splits a text at commas; the last part may be empty.
std::vector<std::string> split_list(const std::string& text) {
  auto parts = split(text, ',');
  if (text.empty() || text.back() == ',') {
    parts.emplace_back();
  }
  return parts;
}

bool read_number(const std::string& text, double& value) {
  const auto number = parse_number<double>(text);
  value = number.value_or(-1);
  return value >= 0 && value < 1e300;
}

ordered_json run_bench_json(const Arguments& arguments) {
  std::vector<std::string> command = {executable_path(), "bench"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.emplace_back("--json");
  const std::string who = "[plan] tandem bench " + arguments.front();
  const FailureFile file;
  const CommandResult result =
      run_command(command, file.variables(), kBenchTimeoutSeconds);
  if (!result.status.ok()) {
    file.throw_first(who);
    throw Error(who + ": " + result.status.describe());
  }
  const std::string& output = result.output;
  const size_t last = output.rfind("\n{");
  auto parsed = ordered_json::parse(
      last == std::string::npos ? output : output.substr(last), nullptr, false);
  if (!parsed.is_object()) {
    throw DataError(who + " printed no JSON; give figures by flags, such as --step-ms");
  }
  return parsed;
}

// Returns the time of the all-reduces of all buckets, one after another, in
// milliseconds.
double time_all_reduce(
    const std::vector<GradientBucket>& buckets, int nproc, const std::string& backend) {
  std::vector<std::string> sizes;
  sizes.reserve(buckets.size());
  for (const auto& bucket : buckets) {
    // A whole number of float32 values.
    const auto floats = static_cast<int64_t>(bucket.bytes / 4);
    sizes.push_back(std::to_string(4 * std::max<int64_t>(1, floats)));
  }
  const auto found = run_bench_json(
      {"allreduce", "--nproc", std::to_string(nproc), "--backends", backend, "--bytes",
       join(sizes, ",")});
  double ms = 0;
  for (const auto& result : found.at("results")) {
    // Skips results for private memory, because with shm gradients are in shared
    // buffers.
    if (result.value("memory", "") != "private") {
      ms += result.at("ms").get<double>();
    }
  }
  return ms;
}

// Returns the time of a step, in milliseconds, when `ranks` benches run at the same
// time: the mean of their medians.
double time_crowded_step(const Arguments& arguments, int ranks) {
  std::vector<std::future<double>> steps;
  for (int i = 0; i < ranks; ++i) {
    steps.push_back(std::async(std::launch::async, [&arguments] {
      return run_bench_json(arguments).at("ms_per_step").get<double>();
    }));
  }
  double sum = 0;
  for (auto& step : steps) {
    sum += step.get();
  }
  return sum / ranks;
}

// Returns the time of the all-reduce inside a node, in milliseconds. Uses shm, or gloo
// if this build has no shm.
double time_inside_node(const std::vector<GradientBucket>& buckets, int ranks) {
  if (ranks == 1) {
    return 0;
  }
  try {
    return time_all_reduce(buckets, ranks, "shm");
  } catch (const ConfigError&) {
    return time_all_reduce(buckets, ranks, "gloo");
  }
}

double needed_number(
    const ordered_json& object, const char* key, const std::string& path) {
  const auto found = number_in(object, key);
  if (!found) {
    throw DataError(
        "[plan] '" + path + "' has no number " + key +
        "; name the directory of a run that ended");
  }
  return *found;
}

// Returns the median over reports of the time per step, in milliseconds. Leaves out the
// steps before the first report, which are slower.
double median_step_ms(const std::string& path) {
  std::vector<double> ms;
  double step = 0;
  double seconds = 0;
  std::istringstream lines(read_file(path));
  for (std::string text; std::getline(lines, text);) {
    const auto line = ordered_json::parse(text, nullptr, false);
    if (text_in(line, "kind") != "train") {
      continue;
    }
    const double new_step = needed_number(line, "step", path);
    const double new_seconds = needed_number(line, "train_seconds", path);
    if (step > 0 && new_step > step && new_seconds > seconds) {
      ms.push_back(1000 * (new_seconds - seconds) / (new_step - step));
    }
    step = new_step;
    seconds = new_seconds;
  }
  if (ms.empty()) {
    throw DataError(
        "[plan] '" + path +
        "' has fewer than two reports of training; name a longer run, or a run with a "
        "smaller --log-every");
  }
  return spread_of(ms).median;
}

}  // namespace

PlanInputs measure_inputs(
    const Arguments& step_flags, int ranks_per_node, bool halves) {
  Arguments arguments = {"step"};
  arguments.insert(arguments.end(), step_flags.begin(), step_flags.end());
  const auto step = run_bench_json(arguments);
  if (!step.contains("buckets")) {
    throw ConfigError(
        "[plan] tandem bench step does not report when gradients are ready; use "
        "--step-ms and --gradient-bytes instead of --measure");
  }
  PlanInputs inputs;
  ScalingInputs& scaling = inputs.scaling;
  scaling.step_ms = step.at("ms_per_step").get<double>();
  for (const auto& bucket : step.at("buckets")) {
    scaling.buckets.push_back(
        {bucket.at("bytes").get<double>() / (halves ? 2 : 1),
         bucket.at("lead_ms").get<double>()});
  }
  scaling.ranks_per_node = ranks_per_node;
  if (ranks_per_node > 1) {
    scaling.crowding =
        std::max(1.0, time_crowded_step(arguments, ranks_per_node) / scaling.step_ms);
  }
  scaling.local_ms = time_inside_node(scaling.buckets, ranks_per_node);
  scaling.comm_cpu_ms = time_all_reduce(scaling.buckets, 2, "gloo");
  inputs.batch_size = step.value("batch", 0);
  inputs.tensors = tensor_bytes_of(step);
  inputs.origin = fmt::format(
      "measured here: {}, {}, {}", step.value("model", "?"),
      step.value("executor", "?"), step.value("precision", "?"));
  return inputs;
}

PlanInputs inputs_from_run(
    const std::string& directory, double gradient_bytes, double bucket_bytes,
    double overlap) {
  const std::string path = directory + "/summary.json";
  const auto summary = read_json(path);
  const std::string strategy = summary.value("strategy", "?");
  if (strategy != "data_parallel" && strategy != "sequential") {
    throw ConfigError(
        "[plan] '" + directory + "' is a run with strategy " + strategy +
        ", expected data_parallel or sequential; name another run");
  }
  RunConfig config;
  read_recipe(config, directory + "/config.toml");
  if (config.ranks.nnodes > 1) {
    throw ConfigError(fmt::format(
        "[plan] '{}' is a run on {} hosts, expected one host; name another run",
        directory, config.ranks.nnodes));
  }
  if (config.training.divide_batch) {
    throw ConfigError(fmt::format(
        "[plan] '{}' is a run that divides its batch of {}, expected a fixed batch per "
        "rank; name a run without divide_batch",
        directory, config.training.batch_size));
  }
  const double ranks = needed_number(summary, "world_size", path);
  if (gradient_bytes == 0 && ranks > 1) {
    gradient_bytes = needed_number(summary, "gradient_bytes", path);
  }
  if (gradient_bytes == 0) {
    throw ConfigError(
        "[plan] '" + directory +
        "' is a run of one rank, which sends no gradients; add --gradient-bytes (4 per "
        "parameter)");
  }
  PlanInputs inputs;
  inputs.scaling.ranks_per_node = static_cast<int>(ranks);
  inputs.scaling.step_ms = median_step_ms(directory + "/metrics.jsonl");
  inputs.scaling.buckets =
      even_buckets(gradient_bytes, bucket_bytes, overlap * inputs.scaling.step_ms);
  inputs.batch_size = config.training.batch_size * config.training.accumulate;
  inputs.origin = fmt::format(
      "from {}: {}, {}, {} ranks", directory, summary.value("model", "?"),
      summary.value("executor", "?"), ranks);
  return inputs;
}

std::vector<GradientBucket> parse_buckets(const std::string& text) {
  std::vector<GradientBucket> buckets;
  for (const auto& part : split_list(text)) {
    const size_t at = part.find('@');
    GradientBucket bucket;
    if (at == std::string::npos || !read_number(part.substr(0, at), bucket.bytes) ||
        !read_number(part.substr(at + 1), bucket.lead_ms)) {
      throw ConfigError(
          "[plan] --buckets has '" + part +
          "', expected bytes@ms, such as 4718592@23.1,75264@0; change it");
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

std::vector<int> parse_nodes(const std::string& text) {
  const auto number = [&](const std::string& part) {
    double value = 0;
    if (!read_number(part, value) || value < 1 || value > kMostNodes ||
        value != static_cast<int>(value)) {
      throw ConfigError(fmt::format(
          "[plan] --nodes is '{}', expected a range such as 1..1024 or numbers such as "
          "1,2,4, from 1 to {}; change it",
          text, kMostNodes));
    }
    return static_cast<int>(value);
  };
  const size_t dots = text.find("..");
  std::vector<int> nodes;
  if (dots == std::string::npos) {
    for (const auto& part : split_list(text)) {
      nodes.push_back(number(part));
    }
    return nodes;
  }
  const int last = number(text.substr(dots + 2));
  int next = number(text.substr(0, dots));
  if (next > last) {
    throw ConfigError(
        "[plan] --nodes is '" + text +
        "', expected a range whose end is not below its start; change it");
  }
  for (; next < last; next *= 2) {
    nodes.push_back(next);
  }
  nodes.push_back(last);
  return nodes;
}

}  // namespace tandem::app
