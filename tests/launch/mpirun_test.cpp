#include "tandem/launch/mpirun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/process.h"

namespace tandem {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(Mpirun, CommandEndsWithTheRanksAndTheProgram) {
  const auto command = mpirun_command(3, {"prog", "-x", "a b"});
  EXPECT_EQ(command.front(), "mpirun");
  EXPECT_THAT(command, Contains("--oversubscribe"));
  const std::vector<std::string> tail(command.end() - 5, command.end());
  EXPECT_EQ(tail, (std::vector<std::string>{"-np", "3", "prog", "-x", "a b"}));
}

TEST(Mpirun, ShellLineIsReadByAShellAsItWas) {
  const std::vector<std::string> command = {"printf", "[%s]",  "a b",  "",
                                            "it's",   "$HOME", "--x=1"};
  EXPECT_THAT(shell_line({"a", "--b=c"}), "a --b=c");
  EXPECT_EQ(
      run_command({"sh", "-c", shell_line(command)}).output,
      "[a b][][it's][$HOME][--x=1]");
}

}  // namespace
}  // namespace tandem
