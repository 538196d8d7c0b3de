// `tandem launch` with arguments of Python's launchers, and aliases of flags of `tandem
// train` that the tutorials use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/program/program.h"

namespace tandem::launch_test {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

CommandResult launch(const Arguments& arguments, const Variables& variables = {}) {
  return tandem_run(with({"launch"}, arguments), variables);
}

struct Form {
  const char* name;
  Arguments flags;
  int ranks;
};

using tandem::operator<<;

class LaunchForm : public testing::TestWithParam<Form> {};

TEST_P(LaunchForm, StartsRanksOfTheProgramWithItsArguments) {
  const auto result = checked(launch(with(
      GetParam().flags,
      {"sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_RANK: $*", "sh", "--epochs=3"})));
  std::vector<std::string> lines;
  const auto size = std::to_string(GetParam().ranks);
  for (int i = 0; i < GetParam().ranks; ++i) {
    const auto rank = std::to_string(i);
    lines.push_back(
        "[rank " + rank + "] " + rank + " of " + size + ", " + rank + ": --epochs=3");
  }
  EXPECT_THAT(sorted_lines(result.output), ElementsAreArray(lines));
}

INSTANTIATE_TEST_SUITE_P(
    Python, LaunchForm,
    testing::Values(
        Form{"Tutorial002", {"--nproc_per_node=2"}, 2},
        Form{"Separate", {"--nproc_per_node", "3"}, 3},
        Form{
            "DistributedLaunch",
            {"--nproc_per_node=4", "--nnodes=1", "--node_rank=0",
             "--master_addr=127.0.0.1", "--master_port=29544", "--use_env",
             "--no_python"},
            4},
        Form{"Torchrun", {"--standalone", "--nproc-per-node=3", "--no-python"}, 3},
        Form{
            "Elastic",
            {"--nnodes=1:1", "--nproc-per-node", "4", "--max-restarts=0"},
            4},
        Form{
            "Rendezvous",
            {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id", "7",
             "--nproc-per-node=3"},
            3},
        Form{"Dashes", {"--nproc-per-node=4", "--"}, 4}),
    testing::PrintToStringParamName());

TEST(LaunchProgram, PrintsNothingItselfIfRanksSucceed) {
  const auto result = checked(launch(
      {"--standalone", "--use-env", "--rdzv-id=7", "--rdzv_backend=c10d",
       "--rdzv-endpoint=localhost:29400", "--monitor-interval", "1", "--nproc=3",
       "true"}));
  EXPECT_EQ(result.output + result.errors, "");
}

TEST(LaunchProgram, UsesTheRendezvousEndpoint) {
  const auto result = launch(
      {"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=127.0.0.1:4567", "sh", "-c",
       "echo $MASTER_ADDR $MASTER_PORT $GROUP_RANK"});
  EXPECT_EQ(result.output, "[rank 1] 127.0.0.1 4567 1\n");
}

TEST(LaunchProgram, PassesTheLocalRankOnlyWithNoUseEnv) {
  EXPECT_EQ(launch({"echo", "a"}).output, "[rank 0] a\n");
  EXPECT_EQ(launch({"--use-env", "echo", "a"}).output, "[rank 0] a\n");
  EXPECT_EQ(
      launch({"--no-use-env", "echo", "a"}).output, "[rank 0] --local-rank=0 a\n");
}

// `echo` replaces Python.
TEST(LaunchProgram, StartsScriptsAndModulesWithPython) {
  const Variables echo = {{"PYTHON_EXEC", "echo"}};
  EXPECT_EQ(launch({"train.py", "x"}, echo).output, "[rank 0] -u train.py x\n");
  EXPECT_EQ(
      launch({"-m", "my.train", "x"}, echo).output, "[rank 0] -u -m my.train x\n");
  EXPECT_EQ(
      launch({"--no-use-env", "--module", "my.train", "x"}, echo).output,
      "[rank 0] -u -m my.train --local-rank=0 x\n");
  EXPECT_THAT(
      launch({"--no-python", "./train.py"}, echo).errors, HasSubstr("./train.py"));
}

// --- tandem train ---

TEST(TrainHelp, ListsAllNames) {
  const auto help = tandem_run({"train", "--help"});
  for (const char* name :
       {"--micro-batches", "--num-machines", "--num-processes", "--machine-id", "-n,",
        "-g,", "-nr"}) {
    EXPECT_THAT(help.output, HasSubstr(name));
  }
}

// Without a listener, the launcher of host 1 names the host that it waits for.
std::string looks_for(const Arguments& flags, const Variables& variables) {
  const Scratch scratch;
  replace_file(scratch / "r.toml", "master_addr = \"127.0.0.2\"\nmaster_port = 4002\n");
  const Arguments train = {"train", scratch / "r.toml",  "-n",  "2", "-nr",
                           "1",     "--timeout-seconds", "0.05"};
  return tandem_run(with(train, flags), variables).errors;
}

TEST(TrainMaster, FlagsOverrideTheEnvironmentThatOverridesTheRecipe) {
  const Variables environment = {{"MASTER_ADDR", "127.0.0.3"}, {"MASTER_PORT", "4003"}};
  EXPECT_THAT(looks_for({}, {}), HasSubstr("127.0.0.2:4002"));
  EXPECT_THAT(looks_for({}, environment), HasSubstr("127.0.0.3:4003"));
  EXPECT_THAT(
      looks_for({"--master-addr", "127.0.0.4"}, environment),
      HasSubstr("127.0.0.4:4003"));
  EXPECT_THAT(
      looks_for({"--master-addr=127.0.0.4", "--master-port=4004"}, environment),
      HasSubstr("127.0.0.4:4004"));
  EXPECT_THAT(looks_for({}, {{"MASTER_ADDR", ""}}), HasSubstr("127.0.0.2:4002"));
}

TEST(TrainMaster, IsIgnoredOnOneHost) {
  run_ok(
      {"train", "--model", "simplenet", "--limit", "256", "--nproc", "3"},
      {{"MASTER_ADDR", "no-such-host.invalid"}, {"MASTER_PORT", "x"}});
}

TEST(TrainOutput, OfAllRanksFollowsTheTemplate) {
  const auto result = run_ok(
      {"train", "--model", "simplenet", "--limit", "512", "--nproc", "4", "--log-ranks",
       "all", "--log-line", "rank {rank}, step {step}"});
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_THAT(result.output, HasSubstr("\nrank " + std::string(rank) + ", step 2\n"));
  }
  EXPECT_THAT(result.output, Not(HasSubstr("[rank")));
}

}  // namespace tandem::launch_test
