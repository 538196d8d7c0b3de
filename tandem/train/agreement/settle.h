#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"

namespace tandem {

/// `config` with what `auto` stands for on these ranks: precision, backend, optimizer
/// state and device; what summary.json tells. The executor depends on the model, and is
/// chosen with it (exec/stage_executor.h). Collective.
RunConfig settle(const RunConfig& config, Communicator& comm);

}  // namespace tandem
