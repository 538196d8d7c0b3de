#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/kernels/isa.h"

namespace tandem {

/// Returns the precision of a run, the same on all ranks. "auto" is the precision of
/// the resumed checkpoint; in a new run it is bf16 if the CPUs of all ranks compute in
/// bf16, else fp32. Warns on rank 0 about the cost of fp16, and of bf16 if a CPU does
/// not compute in bf16. `computes_in_bf16`: whether this rank's CPU does. Collective.
Precision settle_precision(
    const RunConfig& config, Communicator& comm, bool computes_in_bf16 = has_bf16());

/// Returns the precision of a run on devices other than main memory. "auto" is the
/// precision of the resumed checkpoint, else fp32. Collective.
Precision settle_precision_on_device(const RunConfig& config, Communicator& comm);

}  // namespace tandem
