// Faults that only a fork server can have. The other tests of the launcher also run
// with a fork server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/launch/launching.h"

namespace tandem::fork_server_test {

using ::testing::ElementsAre;

Words serving(const Words& command) {
  Words all = {helper(), "launch", "--nproc", "3", "--fork-server"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

TEST(ForkServer, MakesRanksChildrenOfTheLauncher) {
  const Scratch directory;
  const auto file = directory / "parent";
  Process launcher(
      {serving({helper(), "exec", "sh", "-c", "echo $PPID > " + file + "$RANK"}),
       {},
       false});
  EXPECT_TRUE(launcher.wait().ok());
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(number_in(file + rank), launcher.pid());
  }
}

TEST(ForkServer, NamesRanksForPs) {
  const auto result = run_command(serving({helper(), "name"}));
  EXPECT_THAT(
      sorted_lines(result.output),
      ElementsAre(
          "[rank 0] tandem-rank-0", "[rank 1] tandem-rank-1",
          "[rank 2] tandem-rank-2"));
}

TEST(ForkServer, ReportsAProgramThatEndsWhileLoading) {
  const auto result = run_command(serving({"sh", "-c", "exit 127"}));
  expect_exit(
      result, 1, {"error: [launch] 'sh' exited with code 127 before it was loaded\n"});
}

TEST(ForkServer, ReportsAMissingProgram) {
  const auto result = run_command(serving({"no-such-program"}));
  expect_exit(result, 2, {"program 'no-such-program' is not in PATH"});
}

TEST(ForkServer, EndsOnASignalWhileLoading) {
  const Scratch directory;
  const auto file = directory / "pid";
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    Process launcher(
        {serving({"sh", "-c", "echo $$ > " + file + "; exec sleep 30"}), {}, true});
    const int pid = number_in(file);
    kill(launcher.pid(), number);
    EXPECT_EQ(launcher.wait().code, 1);
    EXPECT_TRUE(eventually([&] { return !is_running(pid); }));
    remove_all(file);
  }
}

TEST(ForkServer, NamesASuspendedLoader) {
  Words command = serving({"sh", "-c", "kill -STOP $$"});
  command.insert(command.begin() + 2, {"--timeout", "0.5"});
  const auto result = run_command(command, {}, 20);
  expect_exit(
      result, 1,
      {"ranks 0 to 2 on ", " have not started within 0.5 s, because process ",
       ", which loads 'sh', is suspended (SIGSTOP)"});
}

TEST(ForkServer, DiesWithItsLauncherWhileLoading) {
  const Scratch directory;
  const auto file = directory / "pid";
  Process launcher(
      {serving({"sh", "-c", "echo $$ > " + file + "; exec sleep 30"}), {}, true});
  const int pid = number_in(file);
  kill(launcher.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_running(pid); }));
}

// The limit does not apply to root. For this user the third rank is one process too
// many.
TEST(ForkServer, ReportsTheLimitOfProcesses) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become a user without processes";
  }
  const PublicPrograms programs({"launch_helper"});
  const auto helper = programs / "launch_helper";
  for (const auto& way : {" --fork-server " + helper + " exec", std::string()}) {
    const auto result = run_command(
        {"setpriv", "--reuid", "54321", "--clear-groups", "bash", "-c",
         "ulimit -u 4; exec " + helper + " launch --nproc 3" + way + " sleep 30"});
    expect_exit(
        result, 1,
        {"error: [launch] ulimit -u is 4, expected room for another process or thread; "
         "raise it, or lower --nproc or --threads\n"});
  }
}

}  // namespace tandem::fork_server_test
