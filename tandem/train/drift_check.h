#pragma once

#include <cstdint>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Compares the parameters of replicas. Replicas that differ would silently train
/// another model. If they differ, throws Error or copies rank 0's parameters, as
/// `check` says. `step`: completed steps of the run, for the message. Collective.
void check_drift(
    const Assembly& parts, Communicator& comm, DriftCheck check, int64_t step);

}  // namespace tandem
