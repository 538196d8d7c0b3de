#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/kernels/isa.h"

namespace tandem {

/// The precision of a run, the same on all ranks. "auto" is that of the checkpoint the
/// run goes on from; else bf16 where the CPUs of all ranks compute in it, and fp32
/// where one does not. Warns on rank 0 where the run is in bf16 and a CPU does not
/// compute in it, and of what fp16 costs. `computes_in_bf16`: whether this rank's CPU
/// does. Collective.
Precision settle_precision(
    const RunConfig& config, Communicator& comm, bool computes_in_bf16 = has_bf16());

/// The same for ranks on devices that are not main memory: "auto" is the checkpoint's,
/// else fp32. Collective.
Precision settle_precision_on_device(const RunConfig& config, Communicator& comm);

}  // namespace tandem
