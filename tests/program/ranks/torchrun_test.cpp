// Ranks under PyTorch's launcher from PyPI, because Debian's does not run with its
// Python 3.11. `scripts/setup --torchrun` installs it; TANDEM_TEST_TORCHRUN names
// another one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/python.h"
#include "tests/program/program.h"

namespace tandem::torchrun_test {

using testing::HasSubstr;

class Torchrun : public testing::Test {
 protected:
  void SetUp() override {
    if (!file_exists(torchrun())) {
      GTEST_SKIP() << "no torchrun of PyPI; scripts/setup --torchrun, then "
                      "scripts/test -R Torchrun";
    }
  }

  static CommandResult start(
      const std::vector<std::string>& command,
      const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {
        torchrun(), "--standalone", "--nproc-per-node=3", "--no-python"};
    all.insert(all.end(), command.begin(), command.end());
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(all, {}, 300);
  }

  const Scratch scratch_;
};

TEST_F(Torchrun, GivesTheBitsOfTandemsLauncher) {
  const std::vector<std::string> run = {"--model", "convnet", "--limit", "1280"};
  const auto with_out = [&](const std::string& name) {
    auto arguments = run;
    arguments.insert(arguments.end(), {"--out", scratch_ / name});
    return arguments;
  };
  auto ours = with_out("ours");
  ours.insert(ours.begin(), {"train", "--nproc", "3"});
  ASSERT_TRUE(tandem_run(ours).status.ok());
  const auto expected = hash_of(scratch_ / "ours");
  EXPECT_EQ(expected.size(), 64u);

  for (const std::string name : {"tandem", "tandem-worker"}) {
    SCOPED_TRACE(name);
    const auto result = start({program(name), "train"}, with_out(name));
    EXPECT_TRUE(result.status.ok()) << result.errors;
    EXPECT_THAT(result.output, HasSubstr("3 ranks over shm"));
    EXPECT_EQ(hash_of(scratch_ / name), expected);
  }
}

TEST_F(Torchrun, RunsAUsersProgram) {
  const auto result = start({program("launch")}, {});
  EXPECT_TRUE(result.status.ok()) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("Epoch: 9, Loss: "));
}

TEST_F(Torchrun, PrintsTheErrorOfRanksAndFails) {
  const auto result = start({program(), "train"}, {"--model", "nett"});
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(result.errors, HasSubstr("did you mean 'net'?"));
}

}  // namespace tandem::torchrun_test
