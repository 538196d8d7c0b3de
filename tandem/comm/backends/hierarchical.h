#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/shm/shm.h"

namespace tandem {

/// Returns a group of ranks on several hosts. Its all_reduce has two levels: first on
/// each host, then between hosts.
///
/// all_reduce has three steps. The first is an all_reduce over shared memory on each
/// host. The second is an all_reduce between one rank of each host, over the backend of
/// `world`. The third is a broadcast over shared memory. A host's network link thus
/// carries the bytes of only one rank, however many ranks the host has. All other
/// operations use `world`, the group of all ranks.
///
/// Ranks with equal `host` (base/host.h) share memory, and make_buffer() returns shared
/// memory. Sums on a host are in rank order; the backend of `world` determines the
/// order between hosts. Operations progress in calls of the rank's own thread, and in
/// the threads of `world`. all_reduce() may block its caller for up to 2 ms, until the
/// other ranks of the host have arrived. This time is part of
/// CommStats::waited_seconds.
///
/// The ranks find each other through `store` and `name`, as in make_shm_communicator().
/// Returns `world` if no two ranks are on one host. Also returns `world` if ranks of a
/// host cannot share memory; rank 0 then logs the reason. Collective over `world`.
///
/// Source: two-level reduction as in Open MPI's HAN (Luo et al., "HAN: a Hierarchical
/// AutotuNed Collective Communication Framework", CLUSTER 2020).
std::unique_ptr<Communicator> make_hierarchical_communicator(
    std::unique_ptr<Communicator> world, const std::shared_ptr<StoreClient>& store,
    const std::string& name, const std::string& host, const ShmOptions& options = {});

}  // namespace tandem
