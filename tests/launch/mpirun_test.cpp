#include "tandem/launch/mpirun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"

namespace tandem::mpirun_test {

using testing::Contains;
using testing::Not;

TEST(Mpirun, CommandEndsWithTheRanksAndTheProgram) {
  const auto command = mpirun_command(3, {"prog", "-x", "a b"});
  EXPECT_EQ(command.front(), "mpirun");
  EXPECT_THAT(command, Contains("--oversubscribe"));
  const std::vector<std::string> tail(command.end() - 5, command.end());
  EXPECT_EQ(tail, (std::vector<std::string>{"-np", "3", "prog", "-x", "a b"}));
}

TEST(Mpirun, BoundRanksShareCoresOnlyIfThereAreTooFew) {
  const auto one = mpirun_command(1, {"prog"}, MpirunCores::bound);
  EXPECT_THAT(one, Not(Contains("--oversubscribe")));
  EXPECT_THAT(one, Not(Contains("--bind-to")));
  const auto many = mpirun_command(usable_cpus() + 1, {"prog"}, MpirunCores::bound);
  EXPECT_THAT(many, Contains("--oversubscribe"));
  EXPECT_THAT(many, Not(Contains("--bind-to")));
}

TEST(Mpirun, ShellLineKeepsEachWord) {
  const std::vector<std::string> command = {"printf", "[%s]",  "a b",  "",
                                            "it's",   "$HOME", "--x=1"};
  EXPECT_THAT(shell_line({"a", "--b=c"}), "a --b=c");
  EXPECT_EQ(
      run_command({"sh", "-c", shell_line(command)}).output,
      "[a b][][it's][$HOME][--x=1]");
}

}  // namespace tandem::mpirun_test
