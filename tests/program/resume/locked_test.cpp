// A second run in the directory of a run that has not ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/base/test_tools.h"
#include "tests/program/ranks/workers.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::locked_test {

using testing::HasSubstr;

class LockedOut : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(LockedOut, RefusesASecondRunUntilTheFirstEnds) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto command = with({program()}, trained(out), GetParam());
  const Arguments endless = {"--set", "epochs=100000", "--set", "log_every=100000"};
  Process first({with(command, endless, {"--checkpoint-every", "1"}), {}, false});
  ASSERT_TRUE(
      eventually([&] { return !newest_checkpoint(out + "/checkpoints").empty(); }));
  const auto lock = read_file(out + "/run.lock");
  ASSERT_THAT(lock, HasSubstr("process "));
  for (const auto& more : {Arguments(), kResume}) {
    const auto second = run_command(with(command, more));
    expect_exit(second, 2, {"another run writes to '" + out + "'", lock});
    EXPECT_EQ(sorted_lines(second.errors).size(), 1u) << second.errors;
  }
  EXPECT_FALSE(first.poll());
  // As after a power failure.
  const auto workers = workers_of(out);
  EXPECT_FALSE(workers.empty());
  kill(first.pid(), SIGKILL);
  first.wait();
  const auto resumed = checked(run_command(with(command, kResume)));
  EXPECT_THAT(resumed.errors, HasSubstr("resuming from " + out));
  EXPECT_FALSE(file_exists(out + "/run.lock"));
}

INSTANTIATE_TEST_SUITE_P(
    Resume, LockedOut,
    testing::Values(
        std::vector<std::string>{}, std::vector<std::string>{"--nproc", "2"},
        std::vector<std::string>{"--nproc", "2", "--rank-type", "thread"}));

}  // namespace tandem::locked_test
