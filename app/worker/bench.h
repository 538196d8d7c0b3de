#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/command.h"

namespace tandem::app {

/// `bench optimizer`: passes over arenas that hold no model.
int bench_optimizer(const Arguments& arguments);

/// `bench allreduce` in a rank's process.
int bench_allreduce(const Arguments& arguments);

/// Adds LibTorch's version, the CPU and its instruction sets.
void add_machine(nlohmann::ordered_json& json);

}  // namespace tandem::app
