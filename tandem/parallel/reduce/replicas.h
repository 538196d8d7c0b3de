#pragma once

#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Broadcasts rank 0's parameters and buffers to all ranks. Collective.
///
/// Throws ConfigError if the ranks' models or buckets differ. (Without this check, Gloo
/// aborts the process at the first size that differs.)
void start_alike(Communicator& comm, ModelArenas& arenas);

/// Replicas whose parameters have diverged.
struct Drift {
  // Ranks whose parameters differ from rank 0's.
  std::vector<int> ranks;
  // Name of the first parameter of ranks[0] that differs.
  std::string parameter;
};

/// Compares the parameters of all ranks by hashes of their bytes. Every rank gets the
/// same result. Collective.
Drift find_drift(Communicator& comm, ModelArenas& arenas);

/// Broadcasts or averages buffers according to `how`. Does nothing for BufferSync::off
/// and BufferSync::sync. Collective.
void sync_buffers(Communicator& comm, ModelArenas& arenas, BufferSync how);

/// Broadcasts rank 0's copy of the segments with memory to all ranks. Collective.
void broadcast_arena(Communicator& comm, Arena& arena);

}  // namespace tandem
