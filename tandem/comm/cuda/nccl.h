#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/cuda/cuda_library.h"
#include "tandem/config/options/comm_options.h"

namespace tandem {

/// A communicator of ranks with a device each, over LibTorch's ProcessGroupNCCL.
///
/// The ranks meet in `store` under `name`, which must be new for every group. Tensors
/// are on `device`. Operations run on NCCL's streams, after the work that is on the
/// calling thread's current stream. wait() makes the current stream wait for the
/// operation's completion event and does not block; wait_on_host(), and wait() with a
/// timeout, block until the operation has ended.
///
/// After the group's timeout, or at an error of NCCL, ProcessGroupNCCL's watchdog
/// aborts the operation. The device then continues with undefined values in the
/// tensors, and the next call throws CommError. So make one more call, or
/// wait_on_host(), before the results are used for good.
///
/// NCCL ignores tags: a rank receives messages of another rank in the order in which
/// they were sent. The first message in a direction waits until the other rank receives
/// it.
///
/// The order of summation is NCCL's and depends on the size of a buffer.
///
/// Throws CommError if not all ranks come within the timeout or if NCCL fails.
std::unique_ptr<Communicator> make_nccl_communicator(
    const CudaLibrary& cuda, at::Device device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, std::chrono::milliseconds timeout);

/// The group of ranks that compute on `placement`: over NCCL if each rank has a GPU of
/// its own, else through main memory and `host` (backends/device.h), which one line
/// then explains. `store` may be null: the ranks then use main memory. Collective.
///
/// Throws ConfigError if options.backend insists on NCCL and it is impossible.
std::unique_ptr<Communicator> make_cuda_communicator(
    const CudaLibrary& cuda, std::unique_ptr<Communicator> host,
    const std::shared_ptr<StoreClient>& store, const Placement& placement,
    const CommOptions& options);

/// Why these ranks cannot meet over NCCL, which needs a device for each rank; "" if
/// they can. `device`: of this rank, the same text on no other device of the run.
/// `missing`: why this rank has no NCCL, "" if it has. Collective over `host`, a group
/// for main memory; all ranks get the same answer.
std::string nccl_obstacle(
    Communicator& host, const std::string& device, const std::string& missing);

}  // namespace tandem
