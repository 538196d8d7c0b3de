#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/bench_flags.h"
#include "app/worker/bench.h"
#include "app/worker/devices.h"
#include "tandem/optim/optimizer.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kWarmupSteps = 5;

// Updates per measurement on a GPU. For a single update, launching and waiting would
// take most of the time.
constexpr int64_t kInARowOnDevices = 20;

template <typename Body>
double milliseconds_of(const at::Device& device, Body&& body) {
  const int64_t count = device.is_cpu() ? 1 : kInARowOnDevices;
  wait_for(device);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    body();
  }
  wait_for(device);
  return milliseconds_since(start) / static_cast<double>(count);
}

std::shared_ptr<const ArenaLayout> layout_of(
    int64_t parameters, const at::Device& device) {
  const auto all = at::empty({parameters}, at::kFloat).set_requires_grad(true);
  return std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{{"parameters", all}}, std::vector<int64_t>{}, 1, device);
}

// Fills the arena with values other than zero. Unwritten pages would all be the same
// zero page, and the square root of 0 may be faster.
void fill(Arena& arena) {
  const auto all = at::empty({arena.segment(0).numel()}, at::kFloat);
  auto* values = all.data_ptr<float>();
  for (int64_t i = 0; i < all.numel(); ++i) {
    values[i] = 1e-3f * static_cast<float>(1 + i % 1000);
  }
  arena.segment(0).copy_(all);
}

// Copy of bytes, whose time is a lower bound of an update's time.
class Copy {
 public:
  Copy(int64_t bytes, const at::Device& device)
      : from_(at::empty({bytes}, at::TensorOptions(at::kByte).device(device))),
        to_(at::empty({bytes}, at::TensorOptions(at::kByte).device(device))) {
    from_.fill_(1);
    to_.fill_(0);
  }
  void make() {
    if (!to_.is_cpu()) {
      to_.copy_(from_);
      return;
    }
    std::memcpy(to_.data_ptr(), from_.data_ptr(), to_.nbytes());
    // The compiler must not remove the copy.
    asm volatile("" : : "r"(to_.data_ptr()) : "memory");
  }

 private:
  at::Tensor from_;
  at::Tensor to_;
};

struct Times {
  OptimizerKind optimizer = OptimizerKind::sgd;
  // Bytes that one update reads and writes.
  int64_t bytes = 0;
  std::vector<double> update_ms;
  std::vector<double> memcpy_ms;
  // Time of each update divided by the time of the copy after it.
  std::vector<double> ratios;
};

Times time_updates(
    OptimizerKind kind, const BenchOptimizerOptions& options,
    const Placement& placement) {
  const at::Device device = placement.device.value_or(at::kCPU);
  const auto layout = layout_of(options.parameters, device);
  Arena parameters(layout, "parameters");
  Arena gradients(layout, "gradients");
  fill(parameters);
  fill(gradients);
  OptimizerOptions settings;
  settings.kind = kind;
  settings.momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
  const auto optimizer = make_optimizer(settings, parameters, gradients);
  const auto num_states = static_cast<int64_t>(optimizer->state().size());
  // Gradients are only read; parameters and states are read and written.
  Times times{kind, 4 * options.parameters * (3 + 2 * num_states), {}, {}, {}};
  Copy bytes(times.bytes / 2, device);
  const auto range = layout->trainable_ranges().at(0);
  for (int64_t step = 1; step <= kWarmupSteps + options.repeats; ++step) {
    const StepScalars context{optimizer->base_lr(), 1, step, false};
    const double update =
        milliseconds_of(device, [&] { optimizer->update(range, context); });
    const double copy = milliseconds_of(device, [&] { bytes.make(); });
    if (step > kWarmupSteps) {
      times.update_ms.push_back(update);
      times.memcpy_ms.push_back(copy);
      times.ratios.push_back(update / copy);
    }
  }
  return times;
}

ordered_json describe(const Times& times) {
  ordered_json json;
  json["optimizer"] = name_of(times.optimizer);
  add_spread(json, "ms", spread_of(times.update_ms));
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
  const Placement placement = find_placement(options.config, 0);
  ordered_json json;
  for (const auto kind : options.optimizers) {
    const auto row = describe(time_updates(kind, options, placement));
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
    json["device"] = placement.device ? placement.device->str() : "cpu";
    print_with_machine(json);
  }
  return 0;
}

}  // namespace tandem::app
