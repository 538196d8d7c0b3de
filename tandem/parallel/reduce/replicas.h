#pragma once

#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/parallel/reduce/bucket_plan.h"

namespace tandem {

/// Makes replicas start alike: all ranks get rank 0's parameters and buffers.
/// Collective. Throws ConfigError when the ranks' models or bucket plans differ
/// (Gloo would abort the process on the first size that does).
void start_alike(
    Communicator& comm, ModelArenas& arenas, const std::vector<Bucket>& buckets);

/// Replicas that are not what they should be.
struct Drift {
  // Ranks whose parameters differ from rank 0's.
  std::vector<int> ranks;
  // The first parameter in which the first of them does.
  std::string parameter;
};

/// Compares the parameters of all ranks by hashes of their bytes; every rank gets
/// the same answer. Collective.
Drift find_drift(Communicator& comm, ModelArenas& arenas);

/// Brings buffers in step before an evaluation or a checkpoint, as `how` says.
/// Collective.
void sync_buffers(Communicator& comm, ModelArenas& arenas, BufferSync how);

/// Every rank's copy of `arena` becomes rank 0's. Collective.
void broadcast_arena(Communicator& comm, Arena& arena);

}  // namespace tandem
