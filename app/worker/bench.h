#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <nlohmann/json_fwd.hpp>

#include "app/bench_spread.h"
#include "app/command.h"

namespace tandem::app {

/// Runs `bench optimizer`, which times updates of parameters without a model.
int bench_optimizer(const Arguments& arguments);

/// Runs `bench allreduce`, which times all-reduces, in the process of a rank.
int bench_allreduce(const Arguments& arguments);

/// Waits until the device has finished the work in its current stream. Returns
/// immediately for a CPU.
void wait_for(const c10::Device& device);

/// Returns the time since `start`.
double milliseconds_since(std::chrono::steady_clock::time_point start);

/// Adds the median under `key`, and the other quantiles under "p10" and "p90".
void add_spread(nlohmann::ordered_json& json, const char* key, const Spread& spread);

/// Prints `json` with LibTorch's version, the CPU and its instruction sets.
void print_with_machine(nlohmann::ordered_json json);

}  // namespace tandem::app
