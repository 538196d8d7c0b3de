#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tandem/comm/join/join.h"
#include "tandem/config/run_config.h"
#include "tandem/core/arena.h"

namespace tandem::app {

/// Where a rank of this program computes: main memory in tandem-worker, and what
/// config.exec.device says in tandem-worker-cuda. Says so when it leaves the GPUs out
/// for the device `auto`. `local_rank`: the rank's number on its host.
///
/// Throws ConfigError for a device that there is not.
Placement find_placement(const RunConfig& config, int local_rank);

/// What this process took of the placement's device, at most so far; empty for main
/// memory.
std::function<int64_t()> count_device_bytes(const Placement& placement);

/// The group for ranks with such a placement. Collective.
std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig& config, const Placement& placement);

/// GPUs, driver and libraries, as JSON for `tandem doctor`; "" in tandem-worker.
std::string devices_json();

}  // namespace tandem::app
