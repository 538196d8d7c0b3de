#include "tandem/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "tests/base/test_tools.h"
#include "tests/places.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

Words launching(const Words& flags, const std::string& script) {
  Words command = {helper(), "launch"};
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"sh", "-c", script});
  return command;
}

// Launches ranks that run a shell script. None of them should take this long.
CommandResult run_launcher(
    const Words& flags, const std::string& script, const Variables& variables = {}) {
  auto result = run_command(launching(flags, script), variables, 20);
  EXPECT_NE(result.status.signal, SIGKILL) << "the launcher hangs";
  return result;
}

Words sorted_lines(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Ranks that meet over named pipes: a pipe ends when its writer does.
class Launch : public ::testing::Test {
 protected:
  Launch() {
    mkfifo(directory_.file("fifo").c_str(), 0600);
    setenv("DIR", directory_.path().c_str(), 1);
    setenv("HELPER", helper().c_str(), 1);
  }

  // The rank's process, which wrote its id with kWritePid.
  int pid_of(int rank) const {
    return number_in(directory_.file("pid" + std::to_string(rank)));
  }
  void expect_gone(int rank) const {
    const int pid = pid_of(rank);
    EXPECT_TRUE(eventually([&] { return !is_running(pid); })) << "rank " << rank;
  }

  TempDir directory_;
};

const std::string kWritePid = "echo $$ > $DIR/pid$RANK; ";

TEST_F(Launch, TellsEachRankItsPlace) {
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

TEST_F(Launch, GivesAllRanksOnePortAndOneStore) {
  const auto result = run_launcher({"--nproc", "2"}, "echo $MASTER_PORT $TANDEM_STORE");
  const auto lines = sorted_lines(result.output);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(
      lines[0], MatchesRegex("\\[rank 0\\] [1-9][0-9]* unix:/.*/launcher-store"));
  EXPECT_EQ(lines[0].substr(9), lines[1].substr(9));
}

TEST_F(Launch, CountsRanksOverTheHosts) {
  const auto result = run_launcher(
      {"--nproc", "2", "--nnodes", "3", "--node-rank", "1", "--master-port", "4567"},
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $GROUP_RANK $MASTER_PORT $TANDEM_STORE");
  EXPECT_THAT(
      sorted_lines(result.output), ElementsAre(
                                       "[rank 2] 2 6 0 1 4567 tcp:127.0.0.1:4567",
                                       "[rank 3] 3 6 1 1 4567 tcp:127.0.0.1:4567"));
}

TEST_F(Launch, LeavesNothingInTheTemporaryDirectory) {
  const TempDir temporary;
  run_launcher({"--nproc", "2"}, "exit 0", {{"TMPDIR", temporary.path()}});
  run_launcher({"--nproc", "2"}, "exit 1", {{"TMPDIR", temporary.path()}});
  EXPECT_THAT(list_directory(temporary.path()), IsEmpty());
}

TEST_F(Launch, PrefixesEveryLineOfBothStreams) {
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

TEST_F(Launch, KeepsLongLinesWhole) {
  const auto result = run_launcher(
      {"--nproc", "2"}, "head -c 300000 /dev/zero | tr '\\0' $RANK; echo; echo end");
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre(
          "[rank 0] " + std::string(300'000, '0'), "[rank 0] end",
          "[rank 1] " + std::string(300'000, '1'), "[rank 1] end"));
}

TEST_F(Launch, MayLeaveTheTerminalToRankZero) {
  const auto result =
      run_launcher({"--nproc", "2", "--terminal"}, "echo a; echo b >&2");
  EXPECT_THAT(sorted_lines(result.output), ElementsAre("[rank 1] a", "a"));
  EXPECT_THAT(sorted_lines(result.errors), ElementsAre("[rank 1] b", "b"));
}

TEST_F(Launch, MayLeaveOutputWithoutPrefixesButNotErrors) {
  const auto result =
      run_launcher({"--nproc", "2", "--no-prefix"}, "echo a$RANK; echo b$RANK >&2");
  EXPECT_THAT(sorted_lines(result.output), ElementsAre("a0", "a1"));
  EXPECT_THAT(sorted_lines(result.errors), ElementsAre("[rank 0] b0", "[rank 1] b1"));
}

TEST_F(Launch, MayPassTheLocalRankAsAnArgument) {
  const auto result = run_command(
      {helper(), "launch", "--nproc", "2", "--local-rank-at", "2", "echo", "a", "b"},
      {}, 20);
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre("[rank 0] a --local-rank=0 b", "[rank 1] a --local-rank=1 b"));
}

TEST_F(Launch, SetsThreadsUnlessTheUserDid) {
  const std::string script = "echo $OMP_NUM_THREADS";
  EXPECT_EQ(
      run_launcher({}, script, {{"OMP_NUM_THREADS", "7"}}).output, "[rank 0] 7\n");
  EXPECT_EQ(
      run_launcher(
          {"--set", "OMP_NUM_THREADS", "9"}, script, {{"OMP_NUM_THREADS", "7"}})
          .output,
      "[rank 0] 9\n");
}

TEST_F(Launch, PrefersItsOptionsToItsDefaults) {
  unsetenv("OMP_NUM_THREADS");
  EXPECT_THAT(run_launcher({}, "echo $OMP_NUM_THREADS").output, Not(HasSubstr("] \n")));
  EXPECT_EQ(
      run_launcher({"--set", "OMP_NUM_THREADS", "9"}, "env | grep OMP_NUM").output,
      "[rank 0] OMP_NUM_THREADS=9\n");
}

TEST_F(Launch, NamesTheRankThatFailedAndItsCode) {
  const auto result = run_launcher(
      {"--nproc", "3"},
      kWritePid +
          "[ $RANK = 1 ] || exec sleep 30;"
          "until [ -s $DIR/pid0 ] && [ -s $DIR/pid2 ]; do sleep 0.01; done; exit 3");
  EXPECT_EQ(result.status.code, 1);
  const std::string pid = std::to_string(pid_of(1));
  EXPECT_THAT(result.errors, HasSubstr("rank 1 (pid " + pid + ") exited with code 3"));
  EXPECT_EQ(sorted_lines(result.errors).size(), 1u) << result.errors;
  for (const int rank : {0, 2}) {
    expect_gone(rank);
  }
}

TEST_F(Launch, NamesTheKilledRankWhenPeersFailRightAfter) {
  const auto result = run_launcher(
      {"--nproc", "3"},
      "case $RANK in"
      " 0) read line < $DIR/fifo; exit 5;;"
      " 1) exec 3> $DIR/fifo; kill -KILL $$;;"
      " 2) exec sleep 30;;"
      "esac");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors, ContainsRegex("rank 1 \\(pid [0-9]+\\) was killed by SIGKILL"));
}

TEST_F(Launch, NamesTheKilledRankEvenWhenAPeersEndIsSeenFirst) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "case $RANK in"
      " 0) exec 3> $DIR/fifo; exit 5;;"
      " 1) trap '' TERM; read line < $DIR/fifo; sleep 0.1; kill -KILL $$;;"
      "esac");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors, ContainsRegex("rank 1 \\(pid [0-9]+\\) was killed by SIGKILL"));
}

TEST_F(Launch, KillsARankThatIgnoresSigtermAfterTheGrace) {
  const auto result = run_launcher(
      {"--nproc", "2", "--grace", "0.2"},
      "case $RANK in"
      " 0) trap '' TERM; " +
          kWritePid +
          "exec 3> $DIR/fifo; exec sleep 30;;"
          " 1) exec 4< $DIR/fifo; exit 3;;"
          "esac");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors, ContainsRegex("rank 1 \\(pid [0-9]+\\) exited with code 3"));
  expect_gone(0);
}

TEST_F(Launch, LetsRanksFinishWithinTheGrace) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "case $RANK in"
      " 0) trap 'echo saved; exit 0' TERM; exec 3> $DIR/fifo; sleep 30 & wait;;"
      " 1) exec 4< $DIR/fifo; exit 3;;"
      "esac");
  EXPECT_EQ(result.output, "[rank 0] saved\n");
  EXPECT_THAT(result.errors, HasSubstr("exited with code 3"));
}

TEST_F(Launch, EndsAllRanksWhenItIsToldToStop) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    Process launcher(
        {launching({"--nproc", "2"}, kWritePid + "exec sleep 30"), {}, true});
    pid_of(0);
    pid_of(1);
    kill(launcher.pid(), number);
    EXPECT_EQ(launcher.wait().code, 1);
    char buffer[1000];
    const auto size = read(launcher.error_fd(), buffer, sizeof(buffer));
    EXPECT_THAT(
        std::string(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))),
        HasSubstr(std::string("stopped by SIG") + sigabbrev_np(number)));
    for (const int rank : {0, 1}) {
      expect_gone(rank);
      remove_all(directory_.file("pid" + std::to_string(rank)));
    }
  }
}

TEST_F(Launch, SucceedsWhenRanksStopWellAsTold) {
  Process launcher(
      {launching(
           {"--nproc", "2"},
           "trap 'exit 0' TERM; sleep 30 & echo $! > $DIR/pid$RANK; wait"),
       {},
       false});
  pid_of(0);
  pid_of(1);
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.wait().describe(), "exited with code 0");
}

TEST_F(Launch, ForwardsSigusr1) {
  Process launcher(
      {launching(
           {"--nproc", "2"},
           "trap 'exit 0' USR1; sleep 30 & echo $! > $DIR/pid$RANK; wait; exit 4"),
       {},
       false});
  pid_of(0);
  pid_of(1);
  kill(launcher.pid(), SIGUSR1);
  EXPECT_EQ(launcher.wait().describe(), "exited with code 0");
}

TEST_F(Launch, NoRankSurvivesAKilledLauncher) {
  Process launcher(
      {launching({"--nproc", "3"}, "trap '' TERM HUP; " + kWritePid + "exec sleep 30"),
       {{"TMPDIR", directory_.path()}},
       false});
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(is_running(pid_of(rank)));
  }
  kill(launcher.pid(), SIGKILL);
  for (const int rank : {0, 1, 2}) {
    expect_gone(rank);
  }
}

TEST_F(Launch, NoGrandchildSurvives) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "trap '' TERM HUP; setsid sleep 30 & echo $! > $DIR/pid$RANK; exit 0");
  EXPECT_EQ(result.status.code, 0) << result.errors;
  EXPECT_FALSE(is_running(pid_of(0)));
  EXPECT_FALSE(is_running(pid_of(1)));
}

TEST_F(Launch, HearsSignalsAndEndsWhileARankFloodsTheOutput) {
  const auto result = run_command(
      {"sh", "-c",
       "exec $HELPER launch --nproc 2 sh -c '[ $RANK = 1 ] && sleep 0.3 && exit 3; "
       "exec yes'"
       " > /dev/null"},
      {}, 20);
  EXPECT_EQ(result.status.describe(), "exited with code 1");
  EXPECT_THAT(result.errors, HasSubstr("rank 1"));
}

TEST_F(Launch, GoesOnWhenTheReaderOfItsOutputIsGone) {
  const auto result = run_command(
      {"sh", "-c",
       "{ $HELPER launch sh -c 'sleep 0.1; echo a; sleep 0.1; echo b; touch $DIR/done';"
       " echo code $? >&2; } | true"},
      {}, 20);
  EXPECT_EQ(result.errors, "code 0\n");
  EXPECT_TRUE(file_exists(directory_.file("done")));
}

TEST_F(Launch, ReportsMisuseWithItsOwnWordsAndCode) {
  const auto result =
      run_launcher({"--nproc", "2"}, "exec $HELPER fail config '[grid] 3 x 2 of 2'");
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr("error: [grid] 3 x 2 of 2\n"));
  EXPECT_EQ(sorted_lines(result.errors).size(), 1u) << result.errors;
}

TEST_F(Launch, ReportsARanksOwnErrorWithItsRank) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "[ $RANK = 1 ] && exec $HELPER fail data '[files] cannot read'; exec sleep 30");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("rank 1 failed: [files] cannot read"));
}

// Rank 0 lost its peer and is first to end; rank 1 was the cause.
std::string consequence_first(const std::string& kind) {
  return "case $RANK in"
         " 0) exec 3> $DIR/fifo; $HELPER fail comm 'connection reset'; exit 1;;"
         " 1) trap '' TERM; $HELPER fail " +
         kind +
         " 'the cause'; code=$?;"
         "    read line < $DIR/fifo; exit $code;;"
         "esac";
}

TEST_F(Launch, PrefersTheCauseToItsConsequences) {
  const auto result = run_launcher({"--nproc", "2"}, consequence_first("data"));
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("rank 1 failed: the cause"));
  EXPECT_THAT(result.errors, Not(HasSubstr("connection reset")));
}

TEST_F(Launch, ExitsWithTwoWhenTheCauseIsMisuse) {
  const auto result = run_launcher({"--nproc", "2"}, consequence_first("config"));
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr("error: the cause"));
}

TEST_F(Launch, ReportsTheConsequenceWhenThereIsNothingElse) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "[ $RANK = 1 ] && exec $HELPER fail comm 'timed out'; exec sleep 30");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors, HasSubstr("rank 1 failed: [comm] all_reduce failed: timed out"));
}

TEST_F(Launch, PrefersTheFirstReportToARankThatFailsAsItIsStopped) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "case $RANK in"
      " 0) trap 'exit 143' TERM; exec 3> $DIR/fifo; sleep 30 & wait;;"
      " 1) exec 4< $DIR/fifo; exec $HELPER fail comm 'timed out';;"
      "esac");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors, HasSubstr("rank 1 failed: [comm] all_reduce failed: timed out"));
}

TEST_F(Launch, RefusesAProgramThatDoesNotExist) {
  const auto result = run_command({helper(), "launch", "no-such-program"});
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr("'no-such-program'"));
}

TEST(LaunchOptions, AreChecked) {
  const auto refusal = [](const std::function<void(LaunchOptions&)>& change) {
    LaunchOptions options;
    options.command = {"true"};
    change(options);
    return message_of<ConfigError>([&] { launch(options); });
  };
  EXPECT_THAT(refusal([](auto& o) { o.command.clear(); }), HasSubstr("no program"));
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
  const auto threads = [](int nproc) {
    for (const auto& [name, value] : rank_variables(nproc)) {
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
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace tandem
