#pragma once

#include <string>

#include "tandem/base/store/socket.h"

namespace tandem {

/// Listens for HTTP requests at an address of this host. Throws ConfigError, which
/// names --metrics-port and --metrics-address, if that is not possible.
Socket listen_for_metrics(const std::string& address, int port);

/// Listens at the local socket of a run directory, which need not exist yet. The socket
/// has an abstract name made of the directory's path, so it needs no file and vanishes
/// with the process. Only processes of the same container can connect. Returns an empty
/// Socket if another process listens there.
Socket listen_for_run(const std::string& directory);

/// Connects to the local socket of a run directory. Returns an empty Socket if no
/// process of this user or of root listens there.
Socket connect_to_run(const std::string& directory);

/// Returns false if `fd` is a local connection to a process of another user than this
/// process's user and root. Every user can use an abstract name.
bool is_trusted(int fd);

}  // namespace tandem
