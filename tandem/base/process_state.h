#pragma once

#include <sys/types.h>

namespace tandem {

/// Whether a process is stopped (SIGSTOP, Ctrl-Z): it is there, but does nothing.
bool is_stopped(pid_t pid);

}  // namespace tandem
