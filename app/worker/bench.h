#pragma once

#include <c10/core/Device.h>

#include <nlohmann/json_fwd.hpp>

#include "app/command.h"

namespace tandem::app {

/// Runs `bench optimizer`, which times optimizers on arenas without a model.
int bench_optimizer(const Arguments& arguments);

/// Runs `bench allreduce` in the process of a rank.
int bench_allreduce(const Arguments& arguments);

/// Waits until the device's stream is empty. Returns at once for main memory.
void wait_for(const c10::Device& device);

/// Adds LibTorch's version, the CPU and the instruction sets.
void add_machine(nlohmann::ordered_json& json);

}  // namespace tandem::app
