#include "tandem/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/launch/launching.h"

namespace tandem::launcher_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

INSTANTIATE_TEST_SUITE_P(By, Launch, ::testing::Bool(), Launch::name);

TEST_P(Launch, SetsTheVariablesOfEachRank) {
  const auto result = run_launcher(
      {"--nproc", "3"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR");
  EXPECT_EQ(result.status.code, 0) << result.errors;
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre(
          "[rank 0] 0 3 0 3 0 127.0.0.1", "[rank 1] 1 3 1 3 0 127.0.0.1",
          "[rank 2] 2 3 2 3 0 127.0.0.1"));
  EXPECT_EQ(result.errors, "");
}

TEST_P(Launch, GivesAllRanksOnePortAndOneStore) {
  const auto result = run_launcher({"--nproc", "2"}, "echo $MASTER_PORT $TANDEM_STORE");
  const auto lines = sorted_lines(result.output);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(
      lines[0], MatchesRegex("\\[rank 0\\] [1-9][0-9]* unix:/.*/launcher-store"));
  EXPECT_EQ(lines[0].substr(9), lines[1].substr(9));
}

TEST_P(Launch, PassesItsStartTimeToAllRanks) {
  const auto result = run_launcher({"--nproc", "2"}, "echo ${TANDEM_PROGRAM_START}.");
  const auto lines = sorted_lines(result.output);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], MatchesRegex("\\[rank 0\\] [0-9]+\\.[0-9]+\\."));
  EXPECT_EQ(lines[0].substr(9), lines[1].substr(9));
}

TEST_P(Launch, NumbersRanksAcrossHosts) {
  const auto result = run_launcher(
      {"--nproc", "2", "--nnodes", "3", "--node-rank", "1", "--master-port", "4567"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $GROUP_RANK $MASTER_PORT $TANDEM_STORE");
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(
      sorted_lines(result.output), ElementsAre(
                                       "[rank 2] 2 6 0 1 4567 tcp:127.0.0.1:4567",
                                       "[rank 3] 3 6 1 1 4567 tcp:127.0.0.1:4567"));
}

TEST_P(Launch, LeavesNothingInTheTemporaryDirectory) {
  const Scratch temporary;
  run_launcher({"--nproc", "2"}, "exit 0", {{"TMPDIR", temporary.path()}});
  run_launcher({"--nproc", "2"}, "exit 1", {{"TMPDIR", temporary.path()}});
  EXPECT_THAT(list_directory(temporary.path()), IsEmpty());
}

TEST_P(Launch, PrefixesEveryLineOfBothStreams) {
  const auto result =
      run_launcher({"--nproc", "2"}, "echo a; echo; printf 'no newline'; echo b >&2");
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre(
          "[rank 0] ", "[rank 0] a", "[rank 0] no newline", "[rank 1] ", "[rank 1] a",
          "[rank 1] no newline"));
  EXPECT_THAT(result.output, EndsWith("no newline\n"));
  EXPECT_THAT(sorted_lines(result.errors), ElementsAre("[rank 0] b", "[rank 1] b"));
}

TEST_P(Launch, KeepsLongLinesWhole) {
  const auto result = run_launcher(
      {"--nproc", "2"}, "head -c 300000 /dev/zero | tr '\\0' $RANK; echo; echo end");
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre(
          "[rank 0] " + std::string(300'000, '0'), "[rank 0] end",
          "[rank 1] " + std::string(300'000, '1'), "[rank 1] end"));
}

TEST_P(Launch, RankZeroCanShareTheTerminal) {
  const auto result =
      run_launcher({"--nproc", "2", "--terminal"}, "echo a; echo b >&2");
  EXPECT_THAT(sorted_lines(result.output), ElementsAre("[rank 1] a", "a"));
  EXPECT_THAT(sorted_lines(result.errors), ElementsAre("[rank 1] b", "b"));
}

TEST_P(Launch, CanOmitPrefixesOfStandardOutputOnly) {
  const auto result =
      run_launcher({"--nproc", "2", "--no-prefix"}, "echo a$RANK; echo b$RANK >&2");
  EXPECT_THAT(sorted_lines(result.output), ElementsAre("a0", "a1"));
  EXPECT_THAT(sorted_lines(result.errors), ElementsAre("[rank 0] b0", "[rank 1] b1"));
}

TEST_P(Launch, CanPassTheLocalRankAsAnArgument) {
  const auto result = run_command(
      {helper(), "launch", "--nproc", "2", "--local-rank-at", "2", "echo", "a", "b"},
      {}, 20);
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre("[rank 0] a --local-rank=0 b", "[rank 1] a --local-rank=1 b"));
}

// rank_variables() decides about the default (RankVariables.DivideTheCpus).
TEST_P(Launch, OptionsOverrideInheritedAndDefaultVariables) {
  unsetenv("OMP_NUM_THREADS");
  const std::string script = "env | grep OMP_NUM";
  for (const Variables& inherited : {Variables(), {{"OMP_NUM_THREADS", "7"}}}) {
    EXPECT_EQ(
        run_launcher({"--set", "OMP_NUM_THREADS", "9"}, script, inherited).output,
        "[rank 0] OMP_NUM_THREADS=9\n");
  }
  EXPECT_THAT(
      run_launcher({}, script).output,
      MatchesRegex("\\[rank 0\\] OMP_NUM_THREADS=[0-9]+\n"));
}

TEST_P(Launch, ContinuesWithoutAReaderOfItsOutput) {
  const auto result = run_command(
      {"sh", "-c",
       "{ \"$HELPER\" launch sh -c 'sleep 0.1; echo a; sleep 0.1; echo b; touch "
       "$DIR/done';"
       " echo code $? >&2; } | true"},
      {}, 20);
  EXPECT_EQ(result.errors, "code 0\n");
  EXPECT_TRUE(file_exists(directory_ / "done"));
}

TEST_P(Launch, RefusesAProgramThatDoesNotExist) {
  const auto result = run_command({helper(), "launch", "no-such-program"});
  expect_exit(result, 2, {"'no-such-program'"});
}

TEST(LaunchOptions, AreChecked) {
  const auto refusal = [](const std::function<void(LaunchOptions&)>& change) {
    LaunchOptions options;
    options.command = {"true"};
    change(options);
    return error_of<ConfigError>([&] { launch_ranks(options); });
  };
  EXPECT_THAT(
      refusal([](auto& o) { o.command.clear(); }), HasSubstr("the program is missing"));
  for (const int nproc : {-1, 0, 4097}) {
    EXPECT_THAT(
        refusal([&](auto& o) { o.nproc_per_node = nproc; }),
        AllOf(StartsWith("[launch] " + std::to_string(nproc)), HasSubstr("--nproc")));
  }
  EXPECT_THAT(refusal([](auto& o) { o.nnodes = 0; }), HasSubstr("--node-rank"));
  EXPECT_THAT(refusal([](auto& o) { o.node_rank = 1; }), HasSubstr("--node-rank"));
  EXPECT_THAT(refusal([](auto& o) { o.nnodes = 2; }), HasSubstr("--master-port"));
}

TEST(RankVariables, DivideTheCpus) {
  unsetenv("OMP_NUM_THREADS");
  const auto threads = [](int nproc, int64_t wanted = 0) {
    for (const auto& [name, value] : rank_variables(nproc, wanted)) {
      if (name == "OMP_NUM_THREADS") {
        return std::stoi(value);
      }
    }
    return 0;
  };
  EXPECT_GE(threads(1), 1);
  EXPECT_EQ(threads(100'000), 1);
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(threads(1), 0);
  EXPECT_EQ(threads(1, 5), 5);
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace tandem::launcher_test
