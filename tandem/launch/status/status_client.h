#pragma once

#include <optional>

#include "tandem/base/store/socket.h"
#include "tandem/launch/status/run_status.h"

namespace tandem {

/// Requests the status of a run from a StatusServer (launch/status/status_server.h).
/// Returns nullopt if the other process does not answer with a status by `deadline`.
std::optional<RunStatus> request_status(Socket socket, Socket::Deadline deadline);

}  // namespace tandem
