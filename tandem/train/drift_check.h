#pragma once

#include <cstdint>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Checks that all replicas of the model have equal parameters. If they differ, either
/// throws Error or copies the first replica's parameters to the other replicas, as
/// `check` selects. Does nothing for DriftCheck::off. Without this check, ranks could
/// train different models without an error. `step` is the number of completed steps,
/// for the message. Collective.
void check_drift(
    const Assembly& parts, Communicator& comm, DriftCheck check, int64_t step);

}  // namespace tandem
