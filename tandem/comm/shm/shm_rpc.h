#pragma once

#include <memory>

#include "tandem/comm/rpc/rpc.h"
#include "tandem/comm/shm/collectives.h"

namespace tandem {

/// Returns calls between the ranks of a host, as point-to-point messages of a separate
/// group. There is no other thread: data that do not fit into a ring are sent in the
/// rank's next call of any kind.
///
/// A request or an answer consists of the length of its description, the description,
/// and the bytes of its small tensors. Large tensors are in shared memory, from which
/// the receiver copies them. A request's tensor in a buffer of make_buffer() stays
/// there. Other tensors of a request, and all of an answer, are copied to a buffer that
/// is kept for each peer and used again.
std::unique_ptr<Rpc> make_shm_rpc(const ShmGroup& group);

}  // namespace tandem
