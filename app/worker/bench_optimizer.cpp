#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/bench_flags.h"
#include "app/bench_spread.h"
#include "app/worker/bench.h"
#include "tandem/optim/optimizer.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmupSteps = 5;

template <typename Body>
double milliseconds_of(Body&& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::shared_ptr<const ArenaLayout> layout_of(int64_t parameters) {
  const auto all = at::empty({parameters}, at::kFloat).set_requires_grad(true);
  return std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{{"parameters", all}}, std::vector<int64_t>{}, 1);
}

// Not zeros: the same pages everywhere, and a root of 0 may be a cheap one.
void fill(Arena& arena) {
  auto* values = arena.segment(0).data_ptr<float>();
  for (int64_t i = 0; i < arena.segment(0).numel(); ++i) {
    values[i] = 1e-3f * static_cast<float>(1 + i % 1000);
  }
}

struct Times {
  OptimizerKind optimizer = OptimizerKind::sgd;
  // Read and written by one update.
  int64_t bytes = 0;
  std::vector<double> update_ms;
  std::vector<double> memcpy_ms;
  // Of each pair.
  std::vector<double> ratios;
};

Times time_updates(OptimizerKind kind, const BenchOptimizerOptions& options) {
  const auto layout = layout_of(options.parameters);
  Arena parameters(layout, "parameters");
  Arena gradients(layout, "gradients");
  fill(parameters);
  fill(gradients);
  OptimizerOptions settings;
  settings.kind = kind;
  settings.momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
  const auto optimizer = make_optimizer(settings, parameters, gradients);
  const auto num_states = static_cast<int64_t>(optimizer->state().size());
  // The gradients are only read, all else is read and written.
  Times times{kind, 4 * options.parameters * (3 + 2 * num_states), {}, {}, {}};
  const std::vector<char> from(static_cast<size_t>(times.bytes / 2), 1);
  std::vector<char> to(from.size());
  const auto range = layout->trainable_ranges().at(0);
  for (int64_t step = 1; step <= kWarmupSteps + options.repeats; ++step) {
    const StepScalars context{optimizer->base_lr(), 1, step};
    const double update = milliseconds_of([&] { optimizer->update(range, context); });
    const double copy = milliseconds_of([&] {
      std::memcpy(to.data(), from.data(), from.size());
      // The copy is for nothing else.
      asm volatile("" : : "r"(to.data()) : "memory");
    });
    if (step > kWarmupSteps) {
      times.update_ms.push_back(update);
      times.memcpy_ms.push_back(copy);
      times.ratios.push_back(update / copy);
    }
  }
  return times;
}

ordered_json describe(const Times& times) {
  const Spread update = spread_of(times.update_ms);
  ordered_json json;
  json["optimizer"] = name_of(times.optimizer);
  json["ms"] = update.median;
  json["p10"] = update.p10;
  json["p90"] = update.p90;
  json["bytes"] = times.bytes;
  json["memcpy_ms"] = spread_of(times.memcpy_ms).median;
  json["ratio_to_memcpy"] = spread_of(times.ratios).median;
  return json;
}

void print_row(const ordered_json& row) {
  fmt::print(
      "{:<10} {:>8.3f} {:>8.1f} {:>10.3f} {:>8.2f}\n",
      row.at("optimizer").get<std::string>(), row.at("ms").get<double>(),
      row.at("bytes").get<double>() / 1e6, row.at("memcpy_ms").get<double>(),
      row.at("ratio_to_memcpy").get<double>());
}

}  // namespace

int bench_optimizer(const Arguments& arguments) {
  const auto options = parse_bench_optimizer(arguments);
  at::set_num_threads(1);
  ordered_json json;
  for (const auto kind : options.optimizers) {
    const auto row = describe(time_updates(kind, options));
    if (!options.json) {
      if (json.empty()) {
        fmt::print(
            "{:<10} {:>8} {:>8} {:>10} {:>8}\n", "optimizer", "ms", "MB", "memcpy ms",
            "ratio");
      }
      print_row(row);
    }
    json["results"].push_back(row);
  }
  if (options.json) {
    json["parameters"] = options.parameters;
    json["repeats"] = options.repeats;
    json["threads"] = 1;
    add_machine(json);
    fmt::print("{}\n", json.dump());
  }
  return 0;
}

}  // namespace tandem::app
