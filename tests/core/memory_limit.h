#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace tandem {

/// While the object exists, this process can have `room` more bytes of virtual memory
/// than it had before.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t room) {
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    getrlimit(RLIMIT_AS, &old_);
    const auto page_bytes = static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    const rlimit limit{pages * page_bytes + room, old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~MemoryLimit() {
    setrlimit(RLIMIT_AS, &old_);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit old_{};
};

}  // namespace tandem
