#pragma once

#include <memory>

#include "tandem/comm/rpc/rpc.h"
#include "tandem/comm/shm/collectives.h"

namespace tandem {

/// Calls between the ranks of a host, as point-to-point messages of a group that is for
/// nothing else. No thread runs beside the caller: what a ring does not hold goes on in
/// the rank's next call, whichever it is.
///
/// A request or an answer is: the length of its description; the description; the bytes
/// of its small tensors. The others lie in shared memory, from where the receiver
/// copies them: a request's where they are, if that is in a buffer of make_buffer(),
/// and else, as all of an answer's, in a buffer that is kept for one peer and used
/// again.
std::unique_ptr<Rpc> make_shm_rpc(const ShmGroup& group);

}  // namespace tandem
