#pragma once

#include <memory>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/options/comm_options.h"
#include "tandem/core/arena.h"

namespace tandem {

/// A group whose ranks each have a placement on a GPU: `host` for tensors in main
/// memory, and for those on GPUs NCCL where each rank has one of its own and NCCL is
/// there, else main memory too (backends/device.h), which rank 0 says. The ranks meet
/// in `store`; null, as under MPI: no NCCL. Collective.
///
/// Throws ConfigError where options.backend is nccl and it cannot be.
std::unique_ptr<Communicator> make_cuda_communicator(
    std::unique_ptr<Communicator> host, const std::shared_ptr<StoreClient>& store,
    const Placement& placement, const CommOptions& options);

}  // namespace tandem
