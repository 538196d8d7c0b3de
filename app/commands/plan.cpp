#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "app/command_line.h"
#include "app/recipe_runs/plan_inputs.h"
#include "app/report/run_table.h"
#include "tandem/base/error.h"
#include "tandem/config/fields.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr double kMebibyte = 1 << 20;

// Returns the settings that are passed to `bench step`, in addition to the batch size.
std::vector<const char*> measured_settings() {
  std::vector<const char*> all = {"model",     "data",   "executor",  "precision",
                                  "optimizer", "freeze", "recompute", "memory"};
  all.insert(all.end(), std::begin(kSampleSettings), std::end(kSampleSettings));
  return all;
}

// Values of flags. nullopt: use the measured value or the default.
struct PlanFlags {
  std::string nodes = "1..1024";
  // Number of ranks per node; 0: one rank or, with --from, the number of ranks in that
  // run.
  int ranks_per_node = 0;
  std::optional<double> crowding;
  bool measure = false;
  std::string from;
  std::optional<double> step_ms;
  double gradient_bytes = 0;
  double bucket_bytes = 1'048'576;
  double overlap = 0.5;
  std::string buckets;
  double bandwidth_gbit = 10;
  double latency_us = 50;
  std::optional<double> local_ms;
  std::optional<double> comm_cpu_ms;
  int64_t batch_size = 0;
  // Settings of sync, comm_hook and measured_settings().
  RunConfig config;
  // Flags of measured_settings() that were given, with their values, for `bench step`.
  Arguments measured;
  bool json = false;

  bool halves() const {
    return config.strategy.comm_hook != CommHook::none;
  }
};

// Largest accepted measurement.
constexpr double kMost = 1e15;

// Rejects `parameter`, because the scaling model does not cover one all-reduce per
// tensor.
SyncMode parse_sync(const std::string& text) {
  const auto mode = find_choice<SyncMode>(text);
  if (!mode || *mode == SyncMode::parameter) {
    throw unknown_choice(
        "--sync", text, {name_of(SyncMode::overlap), name_of(SyncMode::flat)});
  }
  return *mode;
}

void add_strategy_flags(CLI::App& app, StrategyOptions& strategy) {
  app.add_option_function<std::string>(
      "--sync",
      [&strategy](const std::string& text) { strategy.sync = parse_sync(text); },
      "grouping of gradients into all-reduces: overlap or flat");
  app.add_option_function<std::string>(
      "--comm-hook",
      [&strategy](const std::string& text) {
        strategy.comm_hook = parse_choice<CommHook>("--comm-hook", text);
      },
      "type in which gradients are sent: " + join(choice_names<CommHook>()));
}

void add_flags(CLI::App& app, PlanFlags& flags) {
  app.add_option(
      "--nodes", flags.nodes,
      "numbers of nodes: 1..1024 (doubling, the default) or 1,2,4");
  app.add_option(
         "--ranks-per-node", flags.ranks_per_node,
         "ranks per node (default: 1, or those of the run with --from)")
      ->check(whole_number(1, 65536));
  app.add_option(
         "--crowding", flags.crowding,
         "factor on the time of a step when all ranks of a node compute: 2 for 4 ranks "
         "on 2 cores")
      ->check(number(0, kMost));
  app.add_flag(
      "--measure", flags.measure,
      "measure a step and the all-reduce of a node on this machine");
  app.add_option(
      "--from", flags.from, "directory of a run whose step and bytes are used");
  app.add_option("--step-ms", flags.step_ms, "time of a step of one rank, in ms")
      ->check(number(0, kMost));
  app.add_option(
         "--gradient-bytes", flags.gradient_bytes,
         "bytes of all gradients: 4 per parameter")
      ->check(number(0, kMost));
  app.add_option(
         "--bucket-bytes", flags.bucket_bytes,
         "size of a bucket in bytes, as in tandem train")
      ->check(number(0, kMost));
  app.add_option(
         "--overlap", flags.overlap,
         "share of the step, at its end, in which gradients become ready, 0 to 1 "
         "(default: 0.5)")
      ->check(number(0, 1));
  app.add_option(
      "--buckets", flags.buckets,
      "buckets as bytes@ms,..., as plan --json prints them; replaces "
      "--gradient-bytes, --bucket-bytes and --overlap");
  add_strategy_flags(app, flags.config.strategy);
  app.add_option(
         "--bandwidth-gbit", flags.bandwidth_gbit,
         "bandwidth of a node's link in Gbit/s, each way (default: 10)")
      ->check(number(0, kMost));
  app.add_option(
         "--latency-us", flags.latency_us,
         "latency of a message between nodes, in us (default: 50)")
      ->check(number(0, kMost));
  app.add_option(
         "--local-ms", flags.local_ms, "time of the all-reduce inside a node, in ms")
      ->check(number(0, kMost));
  app.add_option(
         "--comm-cpu-ms", flags.comm_cpu_ms,
         "processor time of a rank for communication with another node, in ms")
      ->check(number(0, kMost));
  app.add_option(
         "--batch-size", flags.batch_size, "samples per rank and step, for samples/s")
      ->check(whole_number(1));
  for (const char* name : measured_settings()) {
    add_setting(app, flags.config, name)
        ->group("With --measure, for tandem bench step");
  }
  app.add_flag("--json", flags.json, "print one JSON object");
}

void parse_flags(CLI::App& app, PlanFlags& flags, const Arguments& arguments) {
  add_flags(app, flags);
  parse(app, arguments);
  for (const char* name : measured_settings()) {
    const Field& field = find_field(name, "plan");
    if (app.count(field.flag()) > 0) {
      flags.measured.insert(
          flags.measured.end(), {field.flag(), field.text(flags.config)});
    }
  }
}

Arguments step_flags(const PlanFlags& flags) {
  Arguments arguments = flags.measured;
  if (flags.batch_size > 0) {
    arguments.insert(
        arguments.end(), {"--batch-size", std::to_string(flags.batch_size)});
  }
  return arguments;
}

void check_flags(const PlanFlags& flags) {
  check(flags.config);
  const bool is_given = flags.step_ms.has_value();
  if (static_cast<int>(flags.measure) + static_cast<int>(!flags.from.empty()) +
          static_cast<int>(is_given) !=
      1) {
    throw ConfigError(
        "[plan] expected one source of the step's time; give one of --measure, --from "
        "RUN_DIRECTORY and --step-ms");
  }
  if (!flags.from.empty() && flags.ranks_per_node > 0) {
    throw ConfigError(
        "[plan] ranks_per_node is set, but --from uses those of the run; leave "
        "--ranks-per-node out");
  }
  if (is_given && flags.buckets.empty() && flags.gradient_bytes == 0) {
    throw ConfigError(
        "[plan] the size of the gradients is missing, which --step-ms needs; add "
        "--gradient-bytes (4 per parameter) or --buckets");
  }
  if (!flags.measure && !flags.measured.empty()) {
    throw ConfigError(
        "[plan] " + flags.measured.front() +
        " is for --measure; add --measure, or leave it out");
  }
}

PlanInputs given_inputs(const PlanFlags& flags) {
  PlanInputs inputs;
  inputs.scaling.step_ms = *flags.step_ms;
  if (flags.buckets.empty()) {
    inputs.scaling.buckets = even_buckets(
        flags.gradient_bytes, flags.bucket_bytes, flags.overlap * *flags.step_ms);
  }
  inputs.origin = "from flags";
  return inputs;
}

PlanInputs inputs_of(const PlanFlags& flags) {
  PlanInputs inputs;
  if (flags.measure) {
    inputs = measure_inputs(
        step_flags(flags), std::max(1, flags.ranks_per_node), flags.halves());
  } else if (!flags.from.empty()) {
    inputs = inputs_from_run(
        flags.from, flags.gradient_bytes, flags.bucket_bytes, flags.overlap);
  } else {
    inputs = given_inputs(flags);
  }
  ScalingInputs& scaling = inputs.scaling;
  if (!flags.buckets.empty()) {
    scaling.buckets = parse_buckets(flags.buckets);
  }
  // measure_inputs() has already halved the buckets.
  if (flags.halves() && (!flags.measure || !flags.buckets.empty())) {
    for (auto& bucket : scaling.buckets) {
      bucket.bytes /= 2;
    }
  }
  if (flags.config.strategy.sync == SyncMode::flat) {
    scaling.buckets = flat_bucket(scaling.buckets);
  }
  if (flags.from.empty()) {
    scaling.ranks_per_node = std::max(1, flags.ranks_per_node);
  }
  scaling.crowding = flags.crowding.value_or(scaling.crowding);
  scaling.bandwidth = flags.bandwidth_gbit * kBytesPerGigabit;
  scaling.latency_ms = flags.latency_us / 1000;
  scaling.local_ms = flags.local_ms.value_or(scaling.local_ms);
  scaling.comm_cpu_ms = flags.comm_cpu_ms.value_or(scaling.comm_cpu_ms);
  inputs.batch_size = flags.batch_size > 0 ? flags.batch_size : inputs.batch_size;
  return inputs;
}

double samples_per_second(const PlanInputs& inputs, const ScalingPoint& point) {
  return 1000.0 * static_cast<double>(inputs.batch_size) * point.ranks / point.step_ms;
}

std::string buckets_text(const std::vector<GradientBucket>& buckets) {
  std::vector<std::string> parts;
  parts.reserve(buckets.size());
  for (const auto& bucket : buckets) {
    parts.push_back(fmt::format("{:.0f}@{:.4g}", bucket.bytes, bucket.lead_ms));
  }
  return join(parts, ",");
}

// Returns the smallest number of ranks above 1, and the largest one. Without such a
// number, both are 1.
std::pair<int, int> ranks_for_memory(const std::vector<ScalingPoint>& points) {
  std::pair<int, int> found{1, 1};
  for (const auto& point : points) {
    found.first = found.first == 1 ? point.ranks : found.first;
    found.second = std::max(found.second, point.ranks);
  }
  return found;
}

void print_json(const PlanInputs& inputs, const std::vector<ScalingPoint>& points) {
  const ScalingInputs& scaling = inputs.scaling;
  ordered_json json;
  json["origin"] = inputs.origin;
  json["step_ms"] = scaling.step_ms;
  json["buckets"] = buckets_text(scaling.buckets);
  json["ranks_per_node"] = scaling.ranks_per_node;
  json["crowding"] = scaling.crowding;
  json["local_ms"] = scaling.local_ms;
  json["comm_cpu_ms"] = scaling.comm_cpu_ms;
  json["bandwidth_gbit"] = scaling.bandwidth / kBytesPerGigabit;
  json["latency_us"] = 1000 * scaling.latency_ms;
  json["batch"] = inputs.batch_size;
  json["rows"] = ordered_json::array();
  for (const auto& point : points) {
    ordered_json row = {
        {"nodes", point.nodes},           {"ranks", point.ranks},
        {"step_ms", point.step_ms},       {"comm_ms", point.comm_ms},
        {"exposed_ms", point.exposed_ms}, {"efficiency", point.efficiency}};
    if (inputs.batch_size > 0) {
      row["samples_per_second"] = samples_per_second(inputs, point);
    }
    json["rows"].push_back(row);
  }
  if (inputs.tensors) {
    const auto [fewest, most] = ranks_for_memory(points);
    json["memory"] = memory_json(*inputs.tensors, fewest, most);
  }
  fmt::print("{}\n", json.dump());
}

void print_table(const PlanInputs& inputs, const std::vector<ScalingPoint>& points) {
  const ScalingInputs& scaling = inputs.scaling;
  fmt::print(
      "Step ({}): {:.4g} ms, {:.4g} MB of gradients in {} message{}.\n"
      "Node: {} rank{}, a step takes {:.3g} times as long when all compute, all-reduce "
      "{:.3g} ms.\nBetween nodes: {:.4g} Gbit/s, {:.4g} us, {:.3g} ms of processor "
      "time.\n\n",
      inputs.origin, scaling.step_ms, flat_bucket(scaling.buckets).front().bytes / 1e6,
      scaling.buckets.size(), scaling.buckets.size() == 1 ? "" : "s",
      scaling.ranks_per_node, scaling.ranks_per_node == 1 ? "" : "s", scaling.crowding,
      scaling.local_ms, scaling.bandwidth / kBytesPerGigabit, 1000 * scaling.latency_ms,
      scaling.comm_cpu_ms);
  RunTable table;
  table.titles = {"nodes", "ranks", "step ms", "comm ms", "exposed ms", "efficiency %"};
  if (inputs.batch_size > 0) {
    table.titles.emplace_back("samples/s");
  }
  for (const auto& point : points) {
    table.rows.push_back(
        {std::to_string(point.nodes), std::to_string(point.ranks),
         fmt::format("{:.2f}", point.step_ms), fmt::format("{:.2f}", point.comm_ms),
         fmt::format("{:.2f}", point.exposed_ms),
         fmt::format("{:.1f}", 100 * point.efficiency)});
    if (inputs.batch_size > 0) {
      table.rows.back().push_back(
          fmt::format("{:.0f}", samples_per_second(inputs, point)));
    }
  }
  fmt::print("{}", to_text(table));
  if (inputs.tensors) {
    const TensorBytes& tensors = *inputs.tensors;
    const auto [fewest, most] = ranks_for_memory(points);
    fmt::print(
        "\nTensors of a rank without --shard: {:.1f} MiB of parameters, {:.1f} MiB of "
        "gradients, {:.1f} MiB of the optimizer's state, {} of activations.\n\n{}",
        tensors.parameters / kMebibyte, tensors.trained / kMebibyte,
        tensors.optimizer / kMebibyte,
        tensors.activations > 0
            ? fmt::format("{:.1f} MiB", tensors.activations / kMebibyte)
            : "unknown bytes",
        to_text(memory_table(tensors, fewest, most)));
  }
}

}  // namespace

int run_plan(const Arguments& arguments) {
  CLI::App app(
      "Predicts time and efficiency of a data-parallel step on any number of nodes, "
      "from a step of one rank (--measure, --from or --step-ms) and the link between "
      "nodes.",
      "tandem plan");
  PlanFlags flags;
  parse_flags(app, flags, arguments);
  check_flags(flags);
  const auto nodes = parse_nodes(flags.nodes);
  const PlanInputs inputs = inputs_of(flags);
  std::vector<ScalingPoint> points;
  points.reserve(nodes.size());
  for (const int count : nodes) {
    points.push_back(predict_step(inputs.scaling, count));
  }
  if (flags.json) {
    print_json(inputs, points);
  } else {
    print_table(inputs, points);
  }
  return 0;
}

}  // namespace tandem::app
