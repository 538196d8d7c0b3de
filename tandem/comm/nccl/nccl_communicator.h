#pragma once

#include <memory>
#include <string>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/nccl/nccl_group.h"

namespace tandem {

struct NcclOptions {
  // Longest time an operation may take, what the device has to do before it included.
  std::chrono::milliseconds timeout{300'000};
  // Longest time that a rank may be late at the start; zero: as long.
  std::chrono::milliseconds forming_timeout{0};
  // Longest time that a communicator without operations may take to end, and then an
  // abort. NCCL ends it on all ranks of a host together.
  std::chrono::milliseconds ending_timeout{10'000};
};

/// A communicator of ranks that have a device each, over NCCL.
///
/// The ranks meet in `store` under `name`, which must be new for every group. Tensors
/// lie on `device.device`. Operations run on streams of their own, after what the
/// calling thread has on its current stream. wait() makes the current stream come after
/// the operation and blocks nobody, unless it has to wait for NCCL to launch it;
/// wait_on_host() and a wait() with a timeout return once it has ended.
///
/// A thread of the communicator looks after what is under way, so that a rank that
/// never comes ends no run in a host that waits for its device for ever: after the
/// timeout, or at an error that NCCL reports, the communicator is aborted. The device
/// then goes on with whatever is in the tensors, and each later call throws CommError,
/// which names the operation that failed first. So before results are used for good,
/// one call must follow or wait_on_host() have returned.
///
/// NCCL has no tags: messages from one rank to another are received in the order in
/// which they were sent, whatever their tags. Each direction between two ranks has a
/// communicator of NCCL's and a stream, made at the first message; send() blocks
/// nobody, so ranks may all send before they receive.
///
/// The order of summation is NCCL's and depends on the size of a buffer. float16 and
/// bfloat16 travel as such. All dtypes are moved; float16, bfloat16, float, double,
/// int64, int32, int8, uint8 and bool (as uint8) are reduced.
///
/// A graph can hold operations: while the caller's current stream captures they go in
/// it, on the communicator's stream, and wait() brings them back. What the host waits
/// for it cannot hold: wait_on_host() throws there. NCCL ends a communicator once the
/// graphs that hold its operations are gone. Source: "Using NCCL with CUDA Graphs" in
/// NCCL's documentation; ranks may differ in which of their calls graphs hold.
///
/// Throws CommError when not all ranks come within the timeout or NCCL fails,
/// InternalError for a tensor on another device.
std::unique_ptr<Communicator> make_nccl_communicator(
    const NcclDevice& device, std::shared_ptr<StoreClient> store,
    const std::string& name, int rank, int size, const NcclOptions& options = {});

}  // namespace tandem
