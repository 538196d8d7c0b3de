#pragma once

#include <string>

namespace tandem {

/// Returns the message for a process or thread that cannot be started (EAGAIN): the
/// limit that is reached, its value, and the action. The limit is pids.max of a control
/// group or the limit of the user (ulimit -u).
std::string explain_process_limit();

/// As above, with the limits of another process, and of the control groups in `root`
/// instead of /sys/fs/cgroup. `groups` is the content of /proc/PID/cgroup.
std::string explain_process_limit(const std::string& groups, const std::string& root);

}  // namespace tandem
