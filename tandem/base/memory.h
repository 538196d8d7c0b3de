#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Returns the number of bytes that this process can allocate without swapping or being
/// killed. This is the machine's available memory, bounded by `ulimit -v` and by the
/// limit of the process's control group (version 2).
int64_t free_memory();

/// Returns the number of processes in this process's control group that the kernel has
/// killed because the group or the machine ran out of memory. The counter is `oom_kill`
/// in memory.events (version 2) or memory.oom_control (version 1). Returns 0 if there
/// is no counter.
int64_t num_memory_kills();

/// Overloads for tests, which simulate other control groups. The file `groups` lists
/// the groups in the format of /proc/self/cgroup. The directory `root` replaces
/// /sys/fs/cgroup.
int64_t free_memory(const std::string& groups, const std::string& root);
int64_t num_memory_kills(const std::string& groups, const std::string& root);

}  // namespace tandem
