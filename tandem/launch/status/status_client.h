#pragma once

#include <optional>
#include <string>

#include "tandem/base/store/socket.h"
#include "tandem/launch/status/run_status.h"

namespace tandem {

/// Requests the status of a run from a StatusServer (launch/status/status_server.h).
/// Returns nullopt if the other process does not answer with a status by `deadline`.
std::optional<RunStatus> request_status(Socket socket, Socket::Deadline deadline);

/// Returns a table for the terminal: a line about the run, a line of headings, and a
/// line for each rank.
std::string status_table(const RunStatus& status);

}  // namespace tandem
