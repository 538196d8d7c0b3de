// The launcher when ranks fail, when a signal stops it, and when it dies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tandem/base/process.h"
#include "tests/launch/launching.h"

namespace tandem::launcher_failures_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_P(Launch, NamesTheRankThatFailedAndItsCode) {
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

TEST_P(Launch, ReportsTheTextOfAnExceptionThatNothingCatches) {
  const auto result = run_launcher(
      {"--nproc", "3"},
      "[ $RANK = 1 ] && exec \"$HELPER\" throw 'no such file'; exec sleep 30");
  expect_exit(result, 1, {"rank 1 failed: no such file"});
}

// The ranks of a new attempt would use the other folder.
TEST_P(Launch, DoesNotStartRanksAgainInAnotherFolder) {
  const Scratch scratch;
  const auto out = scratch / "run";
  make_directories(out);
  const auto result = run_launcher(
      {"--max-restarts", "2", "--out", out},
      "echo >> $DIR/starts; mv " + out + " " + out + "-old; mkdir " + out + "; exit 1");
  expect_exit(result, 2, {"'" + out + "' is another folder now"});
  EXPECT_EQ(read_file(directory_ / "starts"), "\n");
}

// Rank 0 ends first, but only because rank 1 has failed.
TEST_P(Launch, DistinguishesAnExceptionFromItsConsequences) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "[ $RANK = 0 ] && exec \"$HELPER\" throw '[comm] all_reduce #7 failed: closed';"
      " trap '' TERM; sleep 0.3; exec \"$HELPER\" throw 'no such file'");
  expect_exit(result, 1, {"rank 1 failed: no such file"});
}

// A user's program may catch the error of train() and exit with its exit_code().
TEST_P(Launch, ReturnsTheCodeOfRanksThatStoppedAndSaved) {
  for (const auto* other : {"exec sleep 30", "exit 75", "exit 0"}) {
    const auto result = run_launcher(
        {"--nproc", "2"}, "[ $RANK = 1 ] && exit 75; " + std::string(other));
    EXPECT_EQ(result.status.code, 75) << other;
    EXPECT_THAT(result.errors, HasSubstr("exited with code 75"));
  }
  const auto failed = run_launcher(
      {"--nproc", "2"},
      "[ $RANK = 0 ] && read line < $DIR/fifo && exit 75; trap '' TERM; "
      "echo > $DIR/fifo; exec \"$HELPER\" fail data 'no space'");
  expect_exit(failed, 1, {"rank 1 failed: no space"});
}

TEST_P(Launch, NamesTheKilledRankWhenPeersFailRightAfter) {
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

TEST_P(Launch, NamesTheKilledRankEvenIfAPeersEndIsSeenFirst) {
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

// The other ranks have only waited for the suspended one.
TEST_P(Launch, NamesASuspendedRank) {
  const auto result = run_launcher(
      {"--nproc", "3"},
      kWritePid +
          "case $RANK in"
          " 0) until [ -s $DIR/pid1 ] && grep -q 'State:.T' /proc/$(cat "
          "$DIR/pid1)/status;"
          "    do sleep 0.01; done; exec \"$HELPER\" fail comm 'no answer';;"
          " 1) kill -STOP $$;;"
          " 2) exec sleep 30;;"
          "esac");
  expect_exit(
      result, 1, {"rank 1 (pid " + std::to_string(pid_of(1)) + ") was stopped"});
  EXPECT_EQ(sorted_lines(result.errors).size(), 1u) << result.errors;
  for (const int rank : {0, 1, 2}) {
    expect_gone(rank);
  }
}

// No other rank waits for them.
TEST_P(Launch, EndsIfAllRanksAreSuspended) {
  const auto result = run_launcher({"--nproc", "2", "--timeout", "1"}, "kill -STOP $$");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors,
      ContainsRegex("rank [01] \\(pid [0-9]+\\) was stopped by SIGSTOP"));
}

// A control group of version 1 whose processes cannot end, if this machine has such
// groups.
class FrozenGroup {
 public:
  FrozenGroup() {
    mkdir(path_.c_str(), 0755);
  }
  ~FrozenGroup() {
    std::ofstream(path_ + "/freezer.state") << "THAWED";
    eventually([&] { return rmdir(path_.c_str()) == 0 || errno == ENOENT; });
  }
  bool ok() const {
    return file_exists(path_ + "/freezer.state");
  }
  const std::string& path() const {
    return path_;
  }

 private:
  std::string path_ = "/sys/fs/cgroup/freezer/tandem-test-" + std::to_string(getpid());
};

TEST_P(Launch, LeavesARankThatOutlivesSigkill) {
  const FrozenGroup group;
  if (!group.ok()) {
    GTEST_SKIP() << "cannot make a control group of version 1; run as root on a "
                    "machine that has them: scripts/test -R Launch";
  }
  const auto result = run_launcher(
      {"--nproc", "2", "--timeout", "1", "--grace", "0"},
      "[ $RANK = 0 ] && exec sleep 30; " + kWritePid + "echo $$ > " + group.path() +
          "/cgroup.procs; echo FROZEN > " + group.path() + "/freezer.state; sleep 30");
  expect_exit(
      result, 1,
      {"rank 1 (pid " + std::to_string(pid_of(1)) +
       ") still exists after SIGKILL, because it is frozen by its control group"});
  EXPECT_EQ(sorted_lines(result.errors).size(), 1u) << result.errors;
}

// A control group of version 1 with little memory, if this machine has such groups. A
// launcher with AddressSanitizer needs more than 48 MiB.
class SmallGroup {
 public:
  SmallGroup() {
    if (mkdir(path_.c_str(), 0755) == 0) {
      std::ofstream(path_ + "/memory.limit_in_bytes") << (256 << 20);
      std::ofstream(path_ + "/memory.memsw.limit_in_bytes") << (256 << 20);
    }
  }
  ~SmallGroup() {
    eventually([&] { return rmdir(path_.c_str()) == 0 || errno == ENOENT; });
  }
  bool ok() const {
    return file_exists(path_ + "/memory.oom_control");
  }
  const std::string& path() const {
    return path_;
  }

 private:
  std::string path_ = "/sys/fs/cgroup/memory/tandem-test-" + std::to_string(getpid());
};

TEST_P(Launch, DistinguishesARankKilledForLackOfMemory) {
  const SmallGroup group;
  if (!group.ok()) {
    GTEST_SKIP() << "cannot make a control group of version 1; run as root on a "
                    "machine that has them: scripts/test -R Launch";
  }
  Words command = {"sh", "-c", "echo $$ > $0/tasks; exec \"$@\"", group.path()};
  // tail keeps the last line in memory, and /dev/zero has one endless line. The kernel
  // kills the process with the highest score first.
  const auto all = launching(
      {"--nproc", "3"},
      "[ $RANK = 1 ] && echo 1000 > /proc/self/oom_score_adj && exec tail /dev/zero;"
      " exec sleep 30");
  command.insert(command.end(), all.begin(), all.end());
  const auto result = run_command(command);
  EXPECT_EQ(result.status.code, 1) << result.status.describe();
  EXPECT_THAT(
      result.errors,
      ContainsRegex("rank 1 \\(pid [0-9]+\\) was killed by SIGKILL because memory"));
}

TEST_P(Launch, KillsARankThatIgnoresSigtermAfterTheGracePeriod) {
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

TEST_P(Launch, LetsRanksFinishWithinTheGracePeriod) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "case $RANK in"
      " 0) trap 'echo saved; exit 0' TERM; exec 3> $DIR/fifo; sleep 30 & wait;;"
      " 1) exec 4< $DIR/fifo; exit 3;;"
      "esac");
  EXPECT_EQ(result.output, "[rank 0] saved\n");
  EXPECT_THAT(result.errors, HasSubstr("exited with code 3"));
}

TEST_P(Launch, EndsAllRanksOnAStoppingSignal) {
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
      remove_all(directory_ / ("pid" + std::to_string(rank)));
    }
  }
}

TEST_P(Launch, OutlivesItsTerminalUnderNohup) {
  Words command = {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"};
  const auto all =
      launching({"--nproc", "2"}, kWritePid + "read line < $DIR/fifo; exit 0");
  command.insert(command.end(), all.begin(), all.end());
  Process launcher({command, {}, true});
  pid_of(0);
  pid_of(1);
  kill(launcher.pid(), SIGHUP);
  // Time for the launcher to handle the signal.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(launcher.poll());
  EXPECT_TRUE(is_running(pid_of(0)));
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.wait().code, 1);
}

TEST_P(Launch, SucceedsIfSignalledRanksExitWithZero) {
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

// A rank that Ctrl-Z suspended has to save.
TEST_P(Launch, AStoppingSignalWakesASuspendedRank) {
  Process launcher(
      {launching(
           {"--nproc", "2"},
           "trap 'exit 0' TERM; " + kWritePid + "kill -STOP $$; wait"),
       {},
       false});
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(eventually([&] { return is_stopped(pid_of(rank)); }));
  }
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.wait().describe(), "exited with code 0");
}

TEST_P(Launch, ForwardsSigusr1) {
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

TEST_P(Launch, HoldsUserSignalsUntilTheRanksHandleThem) {
  Process launcher(
      {launching(
           {"--nproc", "3"},
           kWritePid +
               "while ! [ -e $DIR/sent ]; do sleep 0.1; done; trap 'exit 0' USR2; "
               "sleep 30 & wait; exit 4"),
       {},
       false});
  for (const int rank : {0, 1, 2}) {
    pid_of(rank);
  }
  kill(launcher.pid(), SIGUSR2);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  replace_file(directory_ / "sent", "");
  EXPECT_EQ(launcher.wait().describe(), "exited with code 0");
}

TEST_P(Launch, NoRankSurvivesAKilledLauncher) {
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

TEST_P(Launch, NoGrandchildSurvives) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "trap '' TERM HUP; setsid sleep 30 & echo $! > $DIR/pid$RANK; exit 0");
  EXPECT_EQ(result.status.code, 0) << result.errors;
  EXPECT_FALSE(is_running(pid_of(0)));
  EXPECT_FALSE(is_running(pid_of(1)));
}

TEST_P(Launch, EndsWhileARankFloodsTheOutput) {
  const auto result = run_command(
      {"sh", "-c",
       "exec \"$HELPER\" launch --nproc 2 sh -c '[ $RANK = 1 ] && sleep 0.3 && exit 3; "
       "exec yes'"
       " > /dev/null"},
      {}, 20);
  EXPECT_EQ(result.status.describe(), "exited with code 1");
  EXPECT_THAT(result.errors, HasSubstr("rank 1"));
}

TEST_P(Launch, ReportsMisuseWithExitCodeTwo) {
  const auto result = run_launcher(
      {"--nproc", "2"}, "exec \"$HELPER\" fail config '[grid] 3 x 2 of 2'");
  expect_exit(result, 2, {"error: [grid] 3 x 2 of 2\n"});
  EXPECT_EQ(sorted_lines(result.errors).size(), 1u) << result.errors;
}

TEST_P(Launch, RemovesControlCharactersFromReports) {
  const auto result = run_launcher(
      {},
      "printf '0 1 r red\\033[31m\\rwindow \\302\\2332J\\a caf\\303\\251\\n' >> "
      "$TANDEM_FAILURE_FILE; exit 1");
  expect_exit(result, 1, {"red?[31m?window ??2J? caf\303\251\n"});
}

TEST_P(Launch, ReportsARanksOwnErrorWithItsRank) {
  const auto result = run_launcher(
      {"--nproc", "2"},
      "[ $RANK = 1 ] && exec \"$HELPER\" fail data '[files] cannot read'; exec sleep "
      "30");
  expect_exit(result, 1, {"rank 1 failed: [files] cannot read"});
}

}  // namespace tandem::launcher_failures_test
