#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace tandem {

/// Returns the largest resident memory that this process has had, in KiB.
inline int64_t most_memory_kb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace tandem
