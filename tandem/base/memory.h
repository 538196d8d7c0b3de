#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Bytes that this process can still take without swapping or being killed: what the
/// machine has available, at most what is left of `ulimit -v` and of the limit of the
/// process's control group (version 2).
int64_t free_memory();

/// How many processes of this process's control group the kernel has killed because
/// memory ran out, by the group's own limit or the machine's: `oom_kill` in
/// memory.events (version 2) or memory.oom_control (version 1). 0 where nobody counts.
int64_t num_memory_kills();

/// The same as the files below `root` say, for a process whose groups are listed in
/// the file `groups` as in /proc/self/cgroup.
int64_t free_memory(const std::string& groups, const std::string& root);
int64_t num_memory_kills(const std::string& groups, const std::string& root);

}  // namespace tandem
