#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/shm/shm.h"

namespace tandem {

/// A group of ranks on several hosts that adds up on each host first: all_reduce is one
/// over shared memory, one of `world`'s kind between one rank of each host, and a
/// broadcast over shared memory. So a host's link carries one rank's bytes, whatever
/// the number of ranks behind it. All else goes over `world`, the group of all ranks.
///
/// Ranks with the same `host` (see base/host.h) share memory; buffers are shm's. A sum
/// is one of hosts' sums, each in rank order; between hosts the order is that of
/// `world`'s backend. Operations move in calls of the rank's own thread, and in
/// `world`'s threads; an all_reduce may hold its caller for up to 2 ms, until the ranks
/// of its host have arrived, which counts as waiting.
///
/// They meet in `store` under `name`, as in make_shm_communicator(). Gives `world` back
/// where no two ranks are on one host, or some that are cannot share memory (which rank
/// 0 logs). Collective over `world`.
///
/// Source: two-level reduction as in Open MPI's HAN (Luo et al., "HAN: a Hierarchical
/// AutotuNed Collective Communication Framework", CLUSTER 2020).
std::unique_ptr<Communicator> make_hierarchical_communicator(
    std::unique_ptr<Communicator> world, const std::shared_ptr<StoreClient>& store,
    const std::string& name, const std::string& host, const ShmOptions& options = {});

}  // namespace tandem
