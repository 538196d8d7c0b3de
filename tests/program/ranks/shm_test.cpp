// Processes that share memory, started without a launcher: no process ends or reaps a
// rank for the others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/store/store.h"
#include "tests/program/program.h"

namespace tandem::shm_test {

using testing::HasSubstr;

struct Ranks {
  std::vector<std::string> outputs;
  std::vector<ExitStatus> statuses;
};

std::string read_all(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(fd, part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

// The last rank is reaped last, so a killed rank is a zombie until then. It may run
// another program than the others.
Ranks run_shm_ranks(
    int size, const std::vector<std::string>& words,
    const std::string& last = "shm_ranks") {
  const std::string directory = make_private_directory();
  Ranks ranks;
  {
    const StoreServer server("unix:" + directory + "/store");
    std::list<Process> processes;
    for (int rank = 0; rank < size; ++rank) {
      RankEnv env;
      env.rank = env.local_rank = rank;
      env.world_size = env.local_world_size = size;
      env.store = server.address();
      ProcessOptions options;
      options.command = with({program(rank + 1 == size ? last : "shm_ranks")}, words);
      options.variables = to_variables(env);
      options.variables.emplace_back("OMP_NUM_THREADS", "1");
      options.pipe_output = true;
      processes.emplace_back(options);
    }
    for (auto& process : processes) {
      ranks.statuses.push_back(process.wait());
      ranks.outputs.push_back(read_all(process.output_fd()));
    }
  }
  remove_all(directory);
  return ranks;
}

// Unit tests that run at the same time have directories there.
std::set<std::string> our_files_in_dev_shm() {
  std::set<std::string> found;
  for (const auto& name : list_directory("/dev/shm")) {
    std::error_code ignored;
    if (name.find("tandem") != std::string::npos &&
        std::filesystem::is_regular_file("/dev/shm/" + name, ignored)) {
      found.insert(name);
    }
  }
  return found;
}

TEST(ShmProcesses, HaveEqualSumsWithFewAndManyRanks) {
  for (const int size : {2, 7}) {
    const auto ranks = run_shm_ranks(size, {"sum"});
    for (const auto& output : ranks.outputs) {
      EXPECT_THAT(output, HasSubstr("sum "));
      EXPECT_EQ(output, ranks.outputs[0]) << size;
    }
  }
}

// The program has another hash of sources: only the file with the hash differs.
TEST(ShmProcesses, NameARankOfAnotherBuild) {
  const auto ranks = run_shm_ranks(3, {"sum"}, "shm_ranks_other_build");
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.statuses[rank].code, 2);
    EXPECT_EQ(ranks.outputs[rank], ranks.outputs[0]);
  }
  expect_parts(ranks.outputs[0], {"rank 2", "of another build", "0.1.0 ("});
  EXPECT_EQ(std::count(ranks.outputs[0].begin(), ranks.outputs[0].end(), '\n'), 1);
}

class ShmLoss : public testing::TestWithParam<const char*> {};

TEST_P(ShmLoss, OfARankIsNamedAndLeavesNoFiles) {
  const auto before = our_files_in_dev_shm();
  // The group's timeout is 300 s, so a rank that only waited would outlast the test.
  const auto ranks = run_shm_ranks(3, {"lose", GetParam()});
  EXPECT_EQ(ranks.statuses[2].signal, 9);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(
        ranks.outputs[static_cast<size_t>(rank)], HasSubstr("rank 2 died, peer 2"));
  }
  EXPECT_EQ(our_files_in_dev_shm(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Waits, ShmLoss, testing::Values("small", "large", "shared", "message"),
    [](const auto& row) { return std::string(row.param); });

}  // namespace tandem::shm_test
