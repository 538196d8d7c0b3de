#pragma once

#include <cstdint>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Compares the parameters of replicas, which compute something else than what was
/// asked for, silently, where they differ. Throws Error, or brings them back to rank
/// 0's, as `check` says. `step`: of the run, for the message. Collective.
void check_drift(
    const Assembly& parts, Communicator& comm, DriftCheck check, int64_t step);

}  // namespace tandem
