#pragma once

#include <cstdint>

namespace tandem {

/// Bytes that this process can still take without swapping or being killed: what the
/// machine has available, at most what is left of `ulimit -v` and of the limit of the
/// process's control group (version 2).
int64_t free_memory();

}  // namespace tandem
