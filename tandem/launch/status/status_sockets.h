#pragma once

#include <string>

#include "tandem/base/store/socket.h"

namespace tandem {

/// Listens for HTTP requests at an address of this host. Throws ConfigError, which
/// names --metrics-port and --metrics-address, on failure.
Socket listen_for_metrics(const std::string& address, int port);

/// Listens at the local socket of a run directory, which need not exist yet. The socket
/// has an abstract name that depends on the directory's path, so it needs no file and
/// is removed when the process ends. Only processes of the same container can connect.
/// Returns an empty Socket if another process already listens at this name.
Socket listen_for_run(const std::string& directory);

/// Connects to the local socket of a run directory. Returns an empty Socket if no
/// process of this user or of root listens there.
Socket connect_to_run(const std::string& directory);

/// Returns false if `fd` is a local (Unix) connection to a process of a user other than
/// this process's user and root; otherwise true. The check is needed because every user
/// can use an abstract name.
bool is_trusted(int fd);

}  // namespace tandem
