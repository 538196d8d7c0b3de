#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"
#include "tandem/kernels/isa.h"

namespace tandem {

/// Returns the precision of a run, which is equal on all ranks. In a resumed run,
/// `automatic` becomes the precision that the run had before. In a new run, it becomes
/// bf16 if all ranks are on CPUs that compute in bf16, otherwise fp32. On rank 0, warns
/// if the precision is slower than fp32: fp16 always, bf16 if a CPU does not compute in
/// bf16. `computes_in_bf16` is true if this rank's CPU computes in bf16. Collective.
Precision settle_precision(
    const RunConfig& config, const Placement& placement, Communicator& comm,
    bool computes_in_bf16 = has_bf16());

}  // namespace tandem
