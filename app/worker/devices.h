#pragma once

#include <memory>
#include <string>

#include "tandem/comm/join/join.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"

namespace tandem::app {

/// Returns the device of a rank according to config.exec.device. Loads CUDA if the rank
/// may need it, so call this function before any code queries LibTorch whether CUDA is
/// available. If `auto` does not use the GPUs of the host, logs the reason.
/// `local_rank` is the rank's number on its host.
///
/// Throws ConfigError for a device that does not exist, or that cannot compute in the
/// precision of the run.
Placement find_placement(const RunConfig& config, int local_rank);

/// Returns a group of all ranks that accepts tensors on the ranks' devices. Takes
/// ownership of run.comm, which is null afterwards. Collective.
std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig& config, const Placement& placement);

/// Returns the GPUs and the versions of the driver and the CUDA libraries as JSON, for
/// `tandem doctor`.
std::string devices_json();

}  // namespace tandem::app
