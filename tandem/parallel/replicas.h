#pragma once

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/parallel/bucket_plan.h"

namespace tandem {

/// Makes replicas start alike: all ranks get rank 0's parameters and buffers.
/// Collective. Throws ConfigError when the ranks' models or bucket plans differ
/// (Gloo would abort the process on the first size that does).
void start_alike(
    Communicator& comm, ModelArenas& arenas, const std::vector<Bucket>& buckets);

/// Every rank's copy of `arena` becomes rank 0's. Collective.
void broadcast_arena(Communicator& comm, Arena& arena);

}  // namespace tandem
