#include "tandem/base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tandem {
namespace {

TEST(FreeMemory, IsSomeOfThisMachines) {
  const int64_t all = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  EXPECT_GT(free_memory(), 1 << 20);
  EXPECT_LE(free_memory(), all);
}

// A limit that leaves nothing, and one that leaves at most what it is.
TEST(FreeMemory, EndsAtTheLimitOfTheAddressSpace) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{int64_t{1} << 50, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    const bool before = free_memory() > 0;
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &limit);
    _exit(before && free_memory() == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tandem
