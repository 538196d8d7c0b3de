#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Whether this rank leaves all updates to another one, and so needs no optimizer
/// state: a worker of the strategy parameter_server.
bool updates_elsewhere(const StrategyOptions& options, const Communicator& comm);

}  // namespace tandem
