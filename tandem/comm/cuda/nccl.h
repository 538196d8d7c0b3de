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
/// The ranks find each other through `store`, with keys that begin with `name`. Use a
/// different `name` for every group. Tensors are on `device`. Operations run on NCCL's
/// streams, after the work that is on the calling thread's current stream. wait() makes
/// the current stream wait for the operation's completion event and does not block.
/// wait_on_host(), and wait() with a timeout, block until the operation has ended.
///
/// After the group's timeout, or if NCCL fails, ProcessGroupNCCL's watchdog aborts the
/// operation. The device then continues with undefined values in the tensors, and the
/// next call throws CommError. To detect such an error, call wait_on_host() or start
/// another operation before you copy results from the device.
///
/// NCCL ignores tags: a rank receives another rank's messages in the order of their
/// sends. The first message from one rank to another blocks until the other rank
/// receives it.
///
/// NCCL determines the order of summation, which depends on the size of a buffer.
///
/// Throws CommError if not all ranks arrive within the timeout or if NCCL fails.
std::unique_ptr<Communicator> make_nccl_communicator(
    const CudaLibrary& cuda, at::Device device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, std::chrono::milliseconds timeout);

/// Returns a group for tensors in main memory and on the ranks' GPUs. `placement` is
/// this rank's GPU. The group uses NCCL if each rank has a separate GPU and `store` is
/// not null. Otherwise it copies tensors to main memory and sends them over `host`
/// (backends/device.h); rank 0 logs the reason. Collective.
///
/// Throws ConfigError if options.backend is nccl and the ranks cannot use NCCL.
std::unique_ptr<Communicator> make_cuda_communicator(
    const CudaLibrary& cuda, std::unique_ptr<Communicator> host,
    const std::shared_ptr<StoreClient>& store, const Placement& placement,
    const CommOptions& options);

/// Returns the reason why these ranks cannot use NCCL, or "" if they can. NCCL needs a
/// separate device for each rank.
///
/// `device` is a text that identifies this rank's device among all hosts. `missing` is
/// another reason why this rank cannot use NCCL, or "". Collective over `host`, a group
/// for main memory; all ranks get the same result.
std::string nccl_obstacle(
    Communicator& host, const std::string& device, const std::string& missing);

}  // namespace tandem
