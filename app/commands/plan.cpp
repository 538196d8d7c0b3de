#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/command_line.h"
#include "app/recipe_runs/plan_inputs.h"
#include "app/report/run_table.h"
#include "app/setting_flag.h"
#include "tandem/base/error.h"
#include "tandem/config/fields.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr double kUnset = -1;

// Those of `bench step`, beside its batch size.
const char* const kMeasured[] = {"model", "data", "executor", "precision", "optimizer"};

// As written; kUnset where a measurement or a default stands.
struct PlanFlags {
  std::string nodes = "1..1024";
  // 0: one, or those of the run.
  int ranks_per_node = 0;
  double crowding = kUnset;
  bool measure = false;
  std::string from;
  double step_ms = kUnset;
  double gradient_bytes = 0;
  double bucket_bytes = 1'048'576;
  double overlap = 0.5;
  std::string buckets;
  double bandwidth_gbit = 10;
  double latency_us = 50;
  double local_ms = kUnset;
  double comm_cpu_ms = kUnset;
  int64_t batch_size = 0;
  // sync, comm_hook and kMeasured.
  RunConfig config;
  // Of kMeasured what was given, as `bench step` takes it.
  Arguments measured;
  bool json = false;

  bool halves() const {
    return config.strategy.comm_hook != CommHook::none;
  }
};

// The most that a measurement can be.
constexpr double kMost = 1e15;

// One all-reduce for each parameter is nothing that anybody would plan.
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
      "overlap or flat, as in tandem train");
  app.add_option_function<std::string>(
      "--comm-hook",
      [&strategy](const std::string& text) {
        strategy.comm_hook = parse_choice<CommHook>("--comm-hook", text);
      },
      join(choice_names<CommHook>()) + ": halves the bytes");
}

void add_flags(CLI::App& app, PlanFlags& flags) {
  app.add_option("--nodes", flags.nodes, "1..1024 (each twice the last), or 1,2,4");
  app.add_option(
         "--ranks-per-node", flags.ranks_per_node,
         "ranks of each node (1; with --from the run's)")
      ->check(whole_number(1, 65536));
  app.add_option(
         "--crowding", flags.crowding,
         "how many times as long a step takes when all ranks of a node compute: 2 for "
         "4 ranks on 2 cores")
      ->check(number(0, kMost));
  app.add_flag("--measure", flags.measure, "time a step and the node's sums here, now");
  app.add_option(
      "--from", flags.from, "directory of a run, to take step and bytes from");
  app.add_option("--step-ms", flags.step_ms, "a step of one rank alone")
      ->check(number(0, kMost));
  app.add_option("--gradient-bytes", flags.gradient_bytes, "4 per parameter")
      ->check(number(0, kMost));
  app.add_option("--bucket-bytes", flags.bucket_bytes, "as in tandem train")
      ->check(number(0, kMost));
  app.add_option(
         "--overlap", flags.overlap,
         "share of the step, at its end, in which gradients come evenly")
      ->check(number(0, 1));
  app.add_option(
      "--buckets", flags.buckets,
      "instead of the three: bytes@ms,... as bench step --json tells them");
  add_strategy_flags(app, flags.config.strategy);
  app.add_option("--bandwidth-gbit", flags.bandwidth_gbit, "of a node's link, each way")
      ->check(number(0, kMost));
  app.add_option("--latency-us", flags.latency_us, "of a message between nodes")
      ->check(number(0, kMost));
  app.add_option("--local-ms", flags.local_ms, "adding up the gradients inside a node")
      ->check(number(0, kMost));
  app.add_option(
         "--comm-cpu-ms", flags.comm_cpu_ms,
         "a rank's own processor time for communication with one other node")
      ->check(number(0, kMost));
  app.add_option("--batch-size", flags.batch_size, "per rank, for samples/s")
      ->check(whole_number(1));
  for (const char* name : kMeasured) {
    add_setting(app, flags.config, name)->group("With --measure, of tandem bench step");
  }
  app.add_flag("--json", flags.json, "print one JSON object");
}

void parse_flags(CLI::App& app, PlanFlags& flags, const Arguments& arguments) {
  add_flags(app, flags);
  parse(app, arguments);
  for (const char* name : kMeasured) {
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
  const bool by_hand = flags.step_ms != kUnset;
  if (static_cast<int>(flags.measure) + static_cast<int>(!flags.from.empty()) +
          static_cast<int>(by_hand) !=
      1) {
    throw ConfigError(
        "[plan] a step's time is wanted from one source; give one of --measure, --from "
        "RUN_DIRECTORY or --step-ms");
  }
  if (!flags.from.empty() && flags.ranks_per_node > 0) {
    throw ConfigError(
        "[plan] a run has its ranks per node already; leave --ranks-per-node out, or "
        "name a run with as many");
  }
  if (by_hand && flags.buckets.empty() && flags.gradient_bytes == 0) {
    throw ConfigError(
        "[plan] --step-ms does not say how much is sent; add --gradient-bytes, 4 per "
        "parameter, or --buckets");
  }
  if (!flags.measure && !flags.measured.empty()) {
    throw ConfigError(
        "[plan] --model, --data, --executor, --precision and --optimizer say what to "
        "measure; add --measure, or leave them out");
  }
}

PlanInputs by_hand(const PlanFlags& flags) {
  PlanInputs inputs;
  inputs.scaling.step_ms = flags.step_ms;
  if (flags.buckets.empty()) {
    inputs.scaling.buckets = even_buckets(
        flags.gradient_bytes, flags.bucket_bytes, flags.overlap * flags.step_ms);
  }
  inputs.origin = "as given";
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
    inputs = by_hand(flags);
  }
  ScalingInputs& scaling = inputs.scaling;
  if (!flags.buckets.empty()) {
    scaling.buckets = parse_buckets(flags.buckets);
  }
  // What was measured was measured with halves.
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
  scaling.crowding = flags.crowding != kUnset ? flags.crowding : scaling.crowding;
  scaling.bandwidth = flags.bandwidth_gbit * kBytesPerGigabit;
  scaling.latency_ms = flags.latency_us / 1000;
  scaling.local_ms = flags.local_ms != kUnset ? flags.local_ms : scaling.local_ms;
  scaling.comm_cpu_ms =
      flags.comm_cpu_ms != kUnset ? flags.comm_cpu_ms : scaling.comm_cpu_ms;
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
  fmt::print("{}\n", json.dump());
}

void print_table(const PlanInputs& inputs, const std::vector<ScalingPoint>& points) {
  const ScalingInputs& scaling = inputs.scaling;
  fmt::print(
      "A step ({}): {:.4g} ms, {:.4g} MB of gradients in {} message{}.\n"
      "A node: {} rank{}, {:.3g} times as long when all compute, {:.3g} ms to add up "
      "inside.\nBetween nodes: {:.4g} Gbit/s, {:.4g} us, {:.3g} ms of the "
      "processor.\n\n",
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
}

}  // namespace

int run_plan(const Arguments& arguments) {
  CLI::App app(
      "Predicts a data-parallel step's time and efficiency at any number of nodes, "
      "from a step of one rank (--measure, --from or --step-ms) and the link between "
      "nodes. "
      "docs/scaling.md has the formula.",
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
