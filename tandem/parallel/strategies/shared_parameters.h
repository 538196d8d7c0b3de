#pragma once

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Returns an allocator for a parameter arena in memory that all ranks of a host share.
/// Ranks may be threads or processes. Also copies rank 0's values to `parameters`. The
/// caller then moves these tensors into the arena.
///
/// Rank 0 makes an anonymous mapping, and the other ranks open its descriptor in /proc.
/// Ranks may map the memory at different addresses. A rank's mapping exists until its
/// tensors are destroyed. This function and the allocator are collective. `comm` must
/// outlive the allocator.
///
/// Throws ConfigError if the ranks are on several hosts or their models differ, and
/// DataError if the memory cannot be shared.
ArenaAllocator share_parameters(
    Communicator& comm, const std::vector<NamedTensor>& parameters);

}  // namespace tandem
