#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::cuda {

/// How much memory a kernel works with.
struct WorkspaceSize {
  // Of the kernel's type.
  int64_t values = 0;
  int64_t counters = 0;
};

/// What is enough for either.
inline WorkspaceSize larger(const WorkspaceSize& a, const WorkspaceSize& b) {
  return {std::max(a.values, b.values), std::max(a.counters, b.counters)};
}

/// That memory, on the device; for one kernel at a time.
template <typename T>
struct Workspace {
  T* values = nullptr;
  // 0 before a kernel, which leaves them so.
  unsigned* counters = nullptr;
};

}  // namespace tandem::cuda
