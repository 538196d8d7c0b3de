#pragma once

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// All ranks' tensors at the root, in rank order; its own as they are, the others'
/// as copies. Others get their own back. Collective; waits.
std::vector<NamedTensor> gather_tensors(
    Communicator& comm, std::vector<NamedTensor> mine, int root);

}  // namespace tandem
