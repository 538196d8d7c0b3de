#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/kernels/isa.h"

namespace tandem {

/// Returns the precision of a run on the CPU, the same on all ranks. `automatic`
/// becomes the precision of the resumed run or, in a new run, bf16 if the CPUs of all
/// ranks compute in bf16, else fp32. On rank 0, warns that fp16 is slow on a CPU, and
/// that bf16 is slow if a CPU does not compute in bf16. `computes_in_bf16`: whether
/// this rank's CPU computes in bf16. Collective.
Precision settle_precision(
    const RunConfig& config, Communicator& comm, bool computes_in_bf16 = has_bf16());

/// Returns the precision of a run on a device other than the CPU. `automatic` becomes
/// the precision of the resumed run or, in a new run, fp32. Collective.
Precision settle_precision_on_device(const RunConfig& config, Communicator& comm);

}  // namespace tandem
