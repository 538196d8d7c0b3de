// The launcher while nothing reads its output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "tests/base/stalled_pipe.h"
#include "tests/launch/launching.h"

namespace tandem::stalled_output_test {

// A launcher whose standard output and error go into one full pipe.
class Stalled : public Launch {
 protected:
  void start(const Words& flags, const std::string& script) {
    const Words command = launching(flags, script);
    Words all = {"sh", "-c", "exec \"$@\" 2>&1", "sh"};
    all.insert(all.end(), command.begin(), command.end());
    launcher_.emplace(ProcessOptions{all, {}, true});
    ASSERT_TRUE(fills_up(launcher_->output_fd()));
  }

  // Returns how the launcher ended, or "still runs".
  std::string ending() {
    std::optional<ExitStatus> status;
    eventually([&] {
      status = launcher_->poll();
      return status.has_value();
    });
    return status ? status->describe() : "still runs";
  }

  std::optional<Process> launcher_;
};

const std::string kFlood = "while :; do seq 1000 || exit 7; done";

INSTANTIATE_TEST_SUITE_P(By, Stalled, ::testing::Bool(), Stalled::name);

TEST_P(Stalled, LauncherEndsOnAStoppingSignal) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    start({"--nproc", "2"}, kWritePid + kFlood);
    kill(launcher_->pid(), number);
    EXPECT_EQ(ending(), "exited with code 1") << number;
    for (const int rank : {0, 1}) {
      expect_gone(rank);
      remove_all(directory_ / ("pid" + std::to_string(rank)));
    }
  }
}

TEST_P(Stalled, RankThatIgnoresSigtermIsKilledAfterTheGracePeriod) {
  start({"--nproc", "2", "--grace", "0.2"}, "trap '' TERM; " + kWritePid + kFlood);
  kill(launcher_->pid(), SIGTERM);
  EXPECT_EQ(ending(), "exited with code 1");
  expect_gone(0);
  expect_gone(1);
}

TEST_P(Stalled, RanksCanSaveAfterAStoppingSignal) {
  start(
      {"--nproc", "2", "--grace", "60"},
      "trap 'seq 300000; seq 300000 >&2; echo saved > $DIR/saved$RANK; exit 0' TERM;"
      "seq 20000; sleep 60 & wait");
  kill(launcher_->pid(), SIGTERM);
  EXPECT_EQ(ending(), "exited with code 0");
  for (const char* name : {"saved0", "saved1"}) {
    EXPECT_TRUE(file_exists(directory_ / name)) << name;
  }
}

TEST_P(Stalled, RunContinuesWhenReadingResumes) {
  start({"--nproc", "1", "--no-prefix"}, "seq 400000; echo > $DIR/printed");
  // The output exceeds the launcher's queue, so the rank waits.
  EXPECT_FALSE(file_exists(directory_ / "printed"));
  std::string all;
  char buffer[1 << 16];
  EXPECT_TRUE(eventually([&] {
    const auto got = read(launcher_->output_fd(), buffer, sizeof(buffer));
    all.append(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return got == 0;
  }));
  EXPECT_EQ(launcher_->wait().describe(), "exited with code 0");
  EXPECT_TRUE(all == run_command({"seq", "400000"}).output) << all.size();
}

TEST_P(Launch, PassesOnAProgressBarBeforeItsNewline) {
  Process launcher(
      {launching(
           {"--nproc", "1"}, "printf '10%%\\r' >&2; read line < $DIR/fifo; exit 0"),
       {},
       true});
  std::string errors;
  EXPECT_TRUE(eventually([&] {
    char buffer[100];
    const auto got = read(launcher.error_fd(), buffer, sizeof(buffer));
    errors.append(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return !errors.empty();
  }));
  EXPECT_EQ(errors, "[rank 0] 10%\r");
}

}  // namespace tandem::stalled_output_test
