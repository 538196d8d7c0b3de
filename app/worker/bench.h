#pragma once

#include <c10/core/Device.h>

#include <nlohmann/json_fwd.hpp>

#include "app/command.h"

namespace tandem::app {

/// Runs `bench optimizer`, which times updates of parameters without a model.
int bench_optimizer(const Arguments& arguments);

/// Runs `bench allreduce`, which times all-reduces, in the process of a rank.
int bench_allreduce(const Arguments& arguments);

/// Waits until the device has finished the work in its current stream. Returns
/// immediately for a CPU.
void wait_for(const c10::Device& device);

/// Adds LibTorch's version, the CPU and its instruction sets to `json`.
void add_machine(nlohmann::ordered_json& json);

}  // namespace tandem::app
