#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/kernels/isa.h"

namespace tandem {

/// Returns the precision of a run on the CPU, which is equal on all ranks. In a resumed
/// run, `automatic` becomes the precision that the run had before. In a new run, it
/// becomes bf16 if the CPUs of all ranks compute in bf16, otherwise fp32. On rank 0,
/// warns if the precision is slower than fp32: fp16 always, bf16 if a CPU does not
/// compute in bf16.
/// `computes_in_bf16` is true if this rank's CPU computes in bf16. Collective.
Precision settle_precision(
    const RunConfig& config, Communicator& comm, bool computes_in_bf16 = has_bf16());

/// Returns the precision of a run on a device other than the CPU. `automatic` becomes
/// the precision of the resumed run, or fp32 in a new run. Collective.
Precision settle_precision_on_device(const RunConfig& config, Communicator& comm);

}  // namespace tandem
