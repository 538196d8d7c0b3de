// Ranks under PyTorch's launcher from PyPI, because Debian's does not run with its
// Python 3.11. `scripts/setup --torchrun` installs it; TANDEM_TEST_TORCHRUN names
// another one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

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

  static CommandResult start(const Arguments& command, const Arguments& arguments) {
    const Arguments all = with(
        {torchrun(), "--standalone", "--nproc-per-node=3", "--no-python"}, command,
        arguments);
    return run_command(all, {}, 300);
  }

  const Scratch scratch_;
};

TEST_F(Torchrun, GivesTheBitsOfTandemsLauncher) {
  const auto with_out = [&](const std::string& name) {
    return Arguments{"--model", "convnet", "--limit", "640", "--out", scratch_ / name};
  };
  run_ok(with({"train", "--nproc", "3"}, with_out("ours")));
  const auto expected = hash_of(scratch_ / "ours");
  EXPECT_EQ(expected.size(), 64u);

  for (const std::string name : {"tandem", "tandem-worker"}) {
    SCOPED_TRACE(name);
    const auto result = checked(start({program(name), "train"}, with_out(name)));
    EXPECT_THAT(result.output, HasSubstr("3 ranks over shm"));
    EXPECT_EQ(hash_of(scratch_ / name), expected);
  }
}

// Returns the paths of the files below a directory, sorted, without the random part of
// the name of the run. The random part may contain '_'; the id of the run does not.
std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& run : list_directory(directory)) {
    const auto root = std::filesystem::path(directory) / run;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const auto path = std::filesystem::relative(entry.path(), root).string();
      paths.push_back(run.substr(0, run.find('_')) + "/" + path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST_F(Torchrun, MakesTheLogFilesAndVariablesOfTandemsLauncher) {
  const auto script =
      "for v in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK "
      "GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE TORCHELASTIC_RUN_ID "
      "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT; do "
      "echo $v=$(printenv $v); done; echo ${TORCHELASTIC_ERROR_FILE##*/attempt}";
  const auto run = [&](const Arguments& launcher, const std::string& name) {
    const Arguments flags = {
        "--nproc-per-node=3", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
        "--rdzv-id=7",        "--role=trainer",      "--redirects=0:3,1:1,2:1",
        "--tee=1:2,2:1",      "--no-python",         "--log-dir=" + (scratch_ / name)};
    checked(run_command(with(launcher, flags, {"sh", "-c", script}), {}, 300));
    const auto root = scratch_ / name + "/" + list_directory(scratch_ / name).at(0);
    std::string texts;
    for (const std::string rank : {"0", "1", "2"}) {
      texts += read_file(root + "/attempt_0/" + rank + "/stdout.log");
    }
    return texts;
  };
  EXPECT_EQ(run({program(), "launch"}, "ours"), run({torchrun()}, "theirs"));
  EXPECT_EQ(files_below(scratch_ / "ours"), files_below(scratch_ / "theirs"));
}

TEST_F(Torchrun, RunsAUsersProgram) {
  const auto result = checked(start({program("launch")}, {}));
  EXPECT_THAT(result.output, HasSubstr("Epoch: 9, Loss: "));
}

TEST_F(Torchrun, PrintsTheErrorOfRanksAndFails) {
  const auto result = start({program(), "train"}, {"--model", "nett"});
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(result.errors, HasSubstr("did you mean 'net'?"));
}

}  // namespace tandem::torchrun_test
