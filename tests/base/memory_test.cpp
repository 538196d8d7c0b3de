#include "tandem/base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/base/test_tools.h"

namespace tandem::memory_test {

TEST(FreeMemory, IsPartOfTheMachinesMemory) {
  const int64_t all = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  EXPECT_GT(free_memory(), 1 << 20);
  EXPECT_LE(free_memory(), all);
}

// A limit that leaves nothing, and a limit that leaves at most its size.
TEST(FreeMemory, IsBoundedByTheAddressSpaceLimit) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer needs address space; scripts/test -R FreeMemory";
#endif
  const int code = code_of_child([] {
    rlimit limit{int64_t{1} << 50, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    const bool before = free_memory() > 0;
    limit.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &limit);
    return before && free_memory() == 0 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

// Files as the kernel writes them; the file of /proc names the groups.
class MemoryGroups : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::string path = directory_ / name;
    make_directories(path.substr(0, path.rfind('/')));
    replace_file(path, text);
  }

  const Scratch directory_;
};

class FreeMemoryOfGroups : public MemoryGroups {
 protected:
  int64_t left() const {
    return free_memory(directory_ / "cgroup", directory_.path());
  }
};

// A limit applies to all groups below, and cached memory is reclaimed first.
TEST_F(FreeMemoryOfGroups, IsTheMinimumOverTheGroups) {
  write("cgroup", "4:memory:/other\n0::/user/run\n");
  write("user/run/memory.max", "max\n");
  write("user/run/memory.current", "600000\n");
  EXPECT_GT(left(), 1'000'000);
  write("user/memory.max", "1000000\n");
  write("user/memory.current", "700000\n");
  EXPECT_EQ(left(), 300'000);
  write("user/memory.stat", "anon 500000\ninactive_file 150000\nactive_file 50000\n");
  EXPECT_EQ(left(), 450'000);
  write("user/run/memory.max", "650000\n");
  EXPECT_EQ(left(), 50'000);
  write("memory.max", "1000\n");
  write("memory.current", "2000\n");
  EXPECT_EQ(left(), 0);
}

class MemoryKills : public MemoryGroups {
 protected:
  int64_t count() const {
    return num_memory_kills(directory_ / "cgroup", directory_.path());
  }
};

TEST_F(MemoryKills, AreReadFromCgroupVersion2) {
  write("cgroup", "0::/user/run\n");
  EXPECT_EQ(count(), 0);
  write("memory.events", "low 1\noom_kill 99\n");
  EXPECT_EQ(count(), 99);
  write(
      "user/run/memory.events",
      "low 0\nhigh 0\nmax 7\noom 5\noom_kill 3\noom_group_kill 1\n");
  EXPECT_EQ(count(), 3);
}

TEST_F(MemoryKills, AreReadFromCgroupVersion1) {
  write("cgroup", "9:name=systemd:/\n4:cpu,memory:/run\n1:cpu:/\n0::/\n");
  write(
      "memory/run/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n");
  EXPECT_EQ(count(), 12);
}

TEST_F(MemoryKills, AreZeroWithoutACounter) {
  EXPECT_EQ(count(), 0);
  write("cgroup", "no group\n");
  EXPECT_EQ(count(), 0);
}

}  // namespace tandem::memory_test
