#include "tandem/base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/test_tools.h"

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

// As the kernel writes them; the file of /proc names the groups.
class MemoryKills : public testing::Test {
 protected:
  int64_t count() const {
    return num_memory_kills(directory_.file("cgroup"), directory_.path());
  }
  void write(const std::string& name, const std::string& text) const {
    const std::string path = directory_.file(name);
    make_directories(path.substr(0, path.rfind('/')));
    replace_file(path, text);
  }

  const TempDir directory_;
};

TEST_F(MemoryKills, AreThoseOfVersionTwosGroup) {
  write("cgroup", "0::/user/run\n");
  EXPECT_EQ(count(), 0);
  write("memory.events", "low 1\noom_kill 99\n");
  EXPECT_EQ(count(), 99);
  write(
      "user/run/memory.events",
      "low 0\nhigh 0\nmax 7\noom 5\noom_kill 3\noom_group_kill 1\n");
  EXPECT_EQ(count(), 3);
}

TEST_F(MemoryKills, AreThoseOfVersionOnesGroupToo) {
  write("cgroup", "9:name=systemd:/\n4:cpu,memory:/run\n1:cpu:/\n0::/\n");
  write(
      "memory/run/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n");
  EXPECT_EQ(count(), 12);
}

TEST_F(MemoryKills, AreNoneWhereNobodyCounts) {
  EXPECT_EQ(count(), 0);
  write("cgroup", "no group\n");
  EXPECT_EQ(count(), 0);
}

}  // namespace
}  // namespace tandem
