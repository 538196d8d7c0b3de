#pragma once

#include <memory>
#include <string>

#include "tandem/comm/join/join.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"

namespace tandem::app {

/// Where a rank of this program computes, as config.exec.device says. Loads CUDA only
/// if it may be needed, so call it before anything else asks LibTorch for CUDA. Logs
/// why `auto` does not use a GPU of the host. `local_rank`: the rank's number on its
/// host.
///
/// Throws ConfigError for a device that does not exist.
Placement find_placement(const RunConfig& config, int local_rank);

/// The group for ranks with such a placement. Collective.
std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig& config, const Placement& placement);

/// GPUs, driver and libraries as JSON, for `tandem doctor`.
std::string devices_json();

}  // namespace tandem::app
