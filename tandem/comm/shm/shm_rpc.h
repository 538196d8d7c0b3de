#pragma once

#include <memory>

#include "tandem/comm/rpc/rpc.h"
#include "tandem/comm/shm/collectives.h"

namespace tandem {

/// Returns an Rpc between the ranks of one host. It sends point-to-point messages of
/// `group`, which no other object may use. There is no other thread: data that do not
/// fit into a ring are sent in the rank's next call of any kind.
///
/// A request or an answer consists of the length of its description, the description,
/// and the bytes of its small tensors. The receiver copies large tensors from shared
/// memory. A request's tensor in a buffer of make_buffer() is already there. The sender
/// copies other large tensors of a request, and all large tensors of an answer, to a
/// buffer that it keeps for each peer.
std::unique_ptr<Rpc> make_shm_rpc(const ShmGroup& group);

}  // namespace tandem
