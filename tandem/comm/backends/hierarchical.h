#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/shm/shm.h"

namespace tandem {

/// Returns a group of ranks on several hosts that reduces on each host first.
///
/// all_reduce is an all_reduce over shared memory, then one over the backend of `world`
/// between one rank of each host, then a broadcast over shared memory. So a host's link
/// carries the bytes of one rank, for any number of ranks on the host. All other
/// operations use `world`, the group of all ranks.
///
/// Ranks with equal `host` (base/host.h) share memory; buffers are those of shared
/// memory. Each host sums in rank order; the order between hosts is that of the backend
/// of `world`. Operations progress in calls of the rank's own thread, and in the
/// threads of `world`. An all_reduce may block its caller for up to 2 ms, until the
/// ranks of its host have arrived; that counts as waiting.
///
/// The ranks meet in `store` under `name`, as in make_shm_communicator(). Returns
/// `world` if no two ranks are on one host, or if some ranks on one host cannot share
/// memory, which rank 0 logs. Collective over `world`.
///
/// Source: two-level reduction as in Open MPI's HAN (Luo et al., "HAN: a Hierarchical
/// AutotuNed Collective Communication Framework", CLUSTER 2020).
std::unique_ptr<Communicator> make_hierarchical_communicator(
    std::unique_ptr<Communicator> world, const std::shared_ptr<StoreClient>& store,
    const std::string& name, const std::string& host, const ShmOptions& options = {});

}  // namespace tandem
