#pragma once

#include <memory>

#include "tandem/comm/rpc/rpc.h"
#include "tandem/comm/shm/collectives.h"

namespace tandem {

/// Returns an Rpc between the ranks of one host. It sends point-to-point messages of
/// `group`, which no other object may use. There is no background thread: data that do
/// not fit into a ring (ShmRing) are sent during the rank's next calls of any kind.
///
/// A request or an answer consists of the length of its description, the description,
/// and the bytes of its small tensors. The receiver copies large tensors from shared
/// memory. If a request's tensor is in a buffer of make_buffer(), the sender does not
/// copy it. The sender copies other large tensors of a request, and all large tensors
/// of an answer, to a buffer in shared memory. For each peer, it keeps one buffer for
/// requests and one for answers.
std::unique_ptr<Rpc> make_shm_rpc(const ShmGroup& group);

}  // namespace tandem
