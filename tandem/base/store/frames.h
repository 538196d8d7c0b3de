#pragma once

#include <string>

#include "tandem/base/store/protocol.h"
#include "tandem/base/store/socket.h"

namespace tandem::store_protocol {

/// Sends one frame. False when it does not leave before `deadline`.
bool send_frame(Socket& socket, const std::string& bytes, Socket::Deadline deadline);

/// Receives one frame. False when none comes before `deadline`, or one that says it is
/// empty or longer than `most_bytes`; memory is taken only after that is known.
bool receive_frame(
    Socket& socket, std::string& bytes, Socket::Deadline deadline,
    uint32_t most_bytes = kMaxFrameBytes);

}  // namespace tandem::store_protocol
