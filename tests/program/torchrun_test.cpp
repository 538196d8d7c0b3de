// Our ranks under PyTorch's own launcher. TANDEM_TEST_TORCHRUN names it: Debian's does
// not run on its Python 3.11, PyPI's does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "program.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class Torchrun : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("TANDEM_TEST_TORCHRUN") == nullptr) {
      GTEST_SKIP() << "TANDEM_TEST_TORCHRUN does not name a torchrun";
    }
  }

  static CommandResult start(
      const std::vector<std::string>& command,
      const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {
        std::getenv("TANDEM_TEST_TORCHRUN"), "--standalone", "--nproc-per-node=2",
        "--no-python"};
    all.insert(all.end(), command.begin(), command.end());
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(all, {}, 300);
  }

  static std::string hash_of(const std::string& out) {
    return json_value(out + "/summary.json", "parameters_sha256");
  }

  const Scratch scratch_;
};

TEST_F(Torchrun, GivesTheBitsOfOurOwnLauncher) {
  const std::vector<std::string> run = {"--model", "convnet", "--limit", "1280"};
  const auto with_out = [&](const std::string& name) {
    auto arguments = run;
    arguments.insert(arguments.end(), {"--out", scratch_ / name});
    return arguments;
  };
  auto ours = with_out("ours");
  ours.insert(ours.begin(), {"train", "--nproc", "2"});
  ASSERT_TRUE(tandem_run(ours).status.ok());
  const auto expected = hash_of(scratch_ / "ours");
  EXPECT_EQ(expected.size(), 64u);

  for (const std::string name : {"tandem", "tandem-worker"}) {
    SCOPED_TRACE(name);
    const auto result = start({program(name), "train"}, with_out(name));
    EXPECT_TRUE(result.status.ok()) << result.errors;
    EXPECT_THAT(result.output, HasSubstr("2 ranks over shm"));
    EXPECT_EQ(hash_of(scratch_ / name), expected);
  }
}

TEST_F(Torchrun, AProgramOfTheUsersRunsUnderIt) {
  const auto result = start({program("launch")}, {});
  EXPECT_TRUE(result.status.ok()) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("Epoch: 9, Loss: "));
}

TEST_F(Torchrun, ShowsOurLineAndFailsWhenRanksAreMisused) {
  const auto result = start({program(), "train"}, {"--model", "nett"});
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(result.errors, HasSubstr("did you mean 'net'?"));
}

}  // namespace
}  // namespace tandem
