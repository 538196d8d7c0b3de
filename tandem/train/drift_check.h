#pragma once

#include <cstdint>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Checks that all replicas of the model have equal parameters. If they differ, throws
/// Error or copies the first replica's parameters to the others, as `check` selects;
/// without this check, the ranks would silently train different models. `step` is the
/// number of completed steps, for the message. Collective.
void check_drift(
    const Assembly& parts, Communicator& comm, DriftCheck check, int64_t step);

}  // namespace tandem
