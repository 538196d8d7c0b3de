#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/cuda/cuda_library.h"
#include "tandem/config/options/comm_options.h"

namespace tandem {

/// Returns a communicator of ranks with one device each, over LibTorch's
/// ProcessGroupNCCL.
///
/// The ranks meet in `store` under `name`, which must be new for every group. Tensors
/// are on `device`. Operations run on NCCL's streams, after the work that is on the
/// calling thread's current stream. wait() makes the current stream wait for the
/// operation's completion event and does not block; wait_on_host(), and wait() with a
/// timeout, block until the operation has ended.
///
/// After the group's timeout, or at an error of NCCL, ProcessGroupNCCL's watchdog
/// aborts the operation. The device then continues with undefined values in the
/// tensors, and the next call throws CommError. So make another call, or
/// wait_on_host(), before the results leave the device.
///
/// NCCL ignores tags: a rank receives another rank's messages in the order of their
/// sends. The first message in a direction waits until the other rank receives it.
///
/// The order of summation is NCCL's and depends on the size of a buffer.
///
/// Throws CommError if not all ranks arrive within the timeout or if NCCL fails.
std::unique_ptr<Communicator> make_nccl_communicator(
    const CudaLibrary& cuda, at::Device device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, std::chrono::milliseconds timeout);

/// Returns the group of ranks that compute on `placement`. It uses NCCL if each rank
/// has a separate GPU, otherwise main memory and `host` (backends/device.h), and logs
/// why. `store` may be null: the ranks then use main memory. Collective.
///
/// Throws ConfigError if options.backend is nccl and NCCL is impossible.
std::unique_ptr<Communicator> make_cuda_communicator(
    const CudaLibrary& cuda, std::unique_ptr<Communicator> host,
    const std::shared_ptr<StoreClient>& store, const Placement& placement,
    const CommOptions& options);

/// Returns the reason why these ranks cannot use NCCL, which needs a device for each
/// rank, or "" if they can.
///
/// `device`: a text that is unique for this rank's device in the run. `missing`: the
/// reason why this rank has no NCCL, "" if it has. Collective over `host`, a group for
/// main memory; all ranks get the same answer.
std::string nccl_obstacle(
    Communicator& host, const std::string& device, const std::string& missing);

}  // namespace tandem
