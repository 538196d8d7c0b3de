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

/// Throws ConfigError if the ranks' models or buckets differ. Collective.
void check_alike(Communicator& comm, ModelArenas& arenas);

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

/// Broadcasts the buffers of rank `root`, or averages buffers, according to `how`. Does
/// nothing for BufferSync::off and BufferSync::sync. Collective.
void sync_buffers(
    Communicator& comm, ModelArenas& arenas, BufferSync how, int root = 0);

/// Ways to sum the values of ranks: by an all-reduce, or at rank 0 in rank order, with
/// equal bits for every backend.
enum class SumAt { all_ranks, first_rank };

/// Replaces the trainable parameters of all ranks, and with `buffers` their buffers, by
/// the means over ranks. Rounds the means of integers, such as counters, towards zero.
/// Collective.
void average_state(
    Communicator& comm, ModelArenas& arenas, bool buffers,
    SumAt sum_at = SumAt::all_ranks);

/// Gathers all ranks' parts of each bucket (Bucket::part()) at every rank. Collective.
void gather_parts(Communicator& comm, const Arena& arena);

/// Broadcasts a rank's copy of the segments with memory to all ranks. Collective.
void broadcast_arena(Communicator& comm, Arena& arena, int root = 0);

}  // namespace tandem
