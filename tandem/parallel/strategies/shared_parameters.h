#pragma once

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Memory for a parameter arena that all ranks of a host share, threads and
/// processes alike: an anonymous mapping that rank 0 makes and the others open by
/// its descriptor in /proc. `parameters`, a model's own before they move into the
/// arena, become rank 0's.
///
/// Each rank has a mapping at an address of its own, which lasts as long as its
/// tensors. Calling this, and the allocator that it returns, is collective; `comm`
/// outlives the allocator.
///
/// Throws ConfigError when the ranks are on several hosts or their models differ,
/// DataError when there is no shared memory.
ArenaAllocator share_parameters(
    Communicator& comm, const std::vector<NamedTensor>& parameters);

}  // namespace tandem
