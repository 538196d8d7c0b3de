// tandem::spawn in real programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/base/test_tools.h"
#include "tests/program/program.h"

namespace tandem::spawn_test {

using testing::ElementsAre;
using testing::EndsWith;
using testing::MatchesRegex;

CommandResult helper(const std::string& word, const Variables& variables = {}) {
  return run_command({program("spawn_helper"), word}, variables, 120);
}

TEST(Spawn, RunsTheBodyOnRanksAndTheRestInTheParent) {
  const auto run = checked(helper("twice"));
  // Ranks also run the code before a call.
  EXPECT_THAT(
      sorted_lines(run.output),
      ElementsAre(
          "[rank 0] before", "[rank 0] between", "[rank 0] second 0 of 3",
          "[rank 1] before", "[rank 1] between", "[rank 1] second 1 of 3",
          "[rank 2] before", "[rank 2] between", "[rank 2] second 2 of 3", "after",
          "before", "before", "before", "between", "first 0 of 2", "first 1 of 2"));
  EXPECT_THAT(run.output, EndsWith("after\n"));
  EXPECT_EQ(run.errors, "");
}

TEST(Spawn, ThrowsWithTheReasonOfTheRankThatFailed) {
  const auto run = checked(helper("fail"));
  EXPECT_EQ(run.output, "failure: rank 1 failed: [files] no such file\n");
  EXPECT_EQ(run.errors, "");
}

TEST(Spawn, ThrowsAConfigErrorForMisuse) {
  EXPECT_EQ(helper("misuse").output, "misuse: [grid] 3 x 2\n");
}

TEST(Spawn, NamesTheSignalOfAKilledRank) {
  EXPECT_THAT(
      helper("killed").output,
      MatchesRegex("failure: rank 1 .pid [0-9]+. was killed by SIGKILL; .*\n"));
}

TEST(Spawn, NamesTheExitCodeOfARank) {
  EXPECT_THAT(
      helper("leaves").output,
      MatchesRegex("failure: rank 1 .pid [0-9]+. exited with code 3; .*\n"));
}

TEST(Spawn, RefusesANumberThatDependsOnTheProcess) {
  const auto run = helper("numbers");
  expect_exit(
      run, 2, {"the number of ranks is 3 in rank", "expected 2 as in the parent"});
}

TEST(Spawn, DoesNotChangeOtherChildrenAndSignals) {
  const auto run = checked(helper("keeps"));
  EXPECT_EQ(run.output, "the child runs\nSIGTERM is free\n");
}

TEST(Spawn, ForwardsSignalsAndThrowsAfterAllRanksEnded) {
  const Scratch scratch;
  Process parent(
      {{"sh", "-c", "cd \"$0\" && exec \"$1\" stay", scratch / ".",
        program("spawn_helper")},
       {},
       true});
  ASSERT_TRUE(eventually([&] { return file_exists(scratch / "up"); }, 100));
  // Only the parent, not its process group.
  kill(parent.pid(), SIGTERM);
  EXPECT_TRUE(parent.wait().ok());
  char buffer[1000];
  const auto size = read(parent.output_fd(), buffer, sizeof(buffer));
  EXPECT_EQ(
      std::string(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))),
      "failure: stopped by SIGTERM\n");
}

TEST(Spawn, AProgramStartedByARankIsNotARank) {
  const auto run = checked(helper("outer"));
  expect_parts(run.output, {"inner said: ", "0 of 2", "1 of 2"});
}

TEST(Spawn, RefusesARankAsCaller) {
  const auto run = helper("inner", {{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  expect_exit(run, 2, {"rank 1 of 2 already; call join_run()"});
}

}  // namespace tandem::spawn_test
