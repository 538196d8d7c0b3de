#pragma once

#include <c10/core/Device.h>

#include <nlohmann/json_fwd.hpp>

#include "app/command.h"

namespace tandem::app {

/// `bench optimizer`: passes over arenas that hold no model.
int bench_optimizer(const Arguments& arguments);

/// `bench allreduce` in a rank's process.
int bench_allreduce(const Arguments& arguments);

/// Until what was put in the device's stream has run; at once in main memory.
void wait_for(const c10::Device& device);

/// Adds LibTorch's version, the CPU and its instruction sets.
void add_machine(nlohmann::ordered_json& json);

}  // namespace tandem::app
