#include "tandem/base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "tests/base/test_tools.h"
#include "tests/places.h"

namespace tandem::process_test {

using Clock = std::chrono::steady_clock;

std::vector<std::string> shell(const std::string& script) {
  return {"sh", "-c", script};
}

std::string output_of(const std::string& script, const Variables& variables = {}) {
  return run_command(shell(script), variables).output;
}

TEST(ExitStatus, DescribesCodesAndSignals) {
  EXPECT_EQ((ExitStatus{0, 0}).describe(), "exited with code 0");
  EXPECT_EQ((ExitStatus{3, 0}).describe(), "exited with code 3");
  EXPECT_EQ((ExitStatus{0, SIGKILL}).describe(), "was killed by SIGKILL");
  EXPECT_EQ((ExitStatus{0, SIGSEGV}).describe(), "was killed by SIGSEGV");
  EXPECT_EQ((ExitStatus{0, SIGRTMIN + 3}).describe(), "was killed by signal 37");
}

TEST(ExitStatus, IsOkOnlyForCodeZeroWithoutASignal) {
  EXPECT_TRUE((ExitStatus{0, 0}).ok());
  EXPECT_FALSE((ExitStatus{1, 0}).ok());
  EXPECT_FALSE((ExitStatus{0, SIGTERM}).ok());
}

TEST(Process, ReturnsTheExitCodeOrTheSignal) {
  const auto status_of = [](const std::string& script) {
    return Process({shell(script), {}, false}).wait();
  };
  for (const int code : {0, 1, 3, 255}) {
    const auto status = status_of("exit " + std::to_string(code));
    EXPECT_EQ(status.code, code);
    EXPECT_EQ(status.signal, 0);
  }
  for (const int number : {SIGKILL, SIGTERM, SIGABRT}) {
    EXPECT_EQ(status_of("kill -" + std::to_string(number) + " $$").signal, number);
  }
}

TEST(Process, PollReturnsNothingUntilTheEnd) {
  Process process({{"sleep", "30"}, {}, false});
  EXPECT_EQ(process.poll(), std::nullopt);
  process.signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return process.poll().has_value(); }));
  EXPECT_EQ(process.poll()->signal, SIGTERM);
  EXPECT_EQ(process.wait().signal, SIGTERM);
}

TEST(Process, InheritsOutputWithoutPipes) {
  Process process({{"true"}, {}, false});
  EXPECT_EQ(process.output_fd(), -1);
  EXPECT_EQ(process.error_fd(), -1);
  EXPECT_TRUE(process.wait().ok());
}

TEST(Process, ReadingItsPipesDoesNotBlock) {
  Process process({{"sleep", "30"}, {}, true});
  char byte = 0;
  EXPECT_EQ(read(process.output_fd(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(read(process.error_fd(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Process, ItsPipesCloseWhenItEnds) {
  // A second process must not keep the pipe of the first open.
  Process first({shell("echo text"), {}, true});
  const Process second({{"sleep", "30"}, {}, true});
  EXPECT_TRUE(first.wait().ok());
  char buffer[100];
  EXPECT_EQ(read(first.output_fd(), buffer, sizeof(buffer)), 5);
  EXPECT_EQ(read(first.output_fd(), buffer, sizeof(buffer)), 0);
}

TEST(Process, DoesNotInheritPipesOfOtherProcesses) {
  // Some descriptors may be inherited from the test's parent.
  const std::string count = "ls /proc/self/fd | wc -l";
  const auto before = output_of(count);
  const Process other({{"sleep", "30"}, {}, true});
  EXPECT_EQ(output_of(count), before);
}

TEST(Process, PassesArgumentsUnchanged) {
  const auto result = run_command(
      {"printf", "<%s>", "two words", "", "$HOME", "quote\"'", "new\nline"});
  EXPECT_EQ(result.output, "<two words><><$HOME><quote\"'><new\nline>");
}

TEST(Process, AddsVariablesToTheInheritedEnvironment) {
  setenv("TANDEM_TEST_KEPT", "kept", 1);
  setenv("TANDEM_TEST_CHANGED", "before", 1);
  setenv("TANDEM_TEST", "prefix of the others", 1);
  EXPECT_EQ(
      output_of(
          "echo $TANDEM_TEST_KEPT $TANDEM_TEST_CHANGED $TANDEM_TEST_NEW $TANDEM_TEST",
          {{"TANDEM_TEST_CHANGED", "after"}, {"TANDEM_TEST_NEW", "a=b"}}),
      "kept after a=b prefix of the others\n");
  EXPECT_EQ(
      output_of(
          "env | grep -c TANDEM_TEST_CHANGED", {{"TANDEM_TEST_CHANGED", "after"}}),
      "1\n");
  unsetenv("TANDEM_TEST_KEPT");
  unsetenv("TANDEM_TEST_CHANGED");
  unsetenv("TANDEM_TEST");
}

TEST(Process, LaterVariablesOverrideEarlierOnes) {
  EXPECT_EQ(
      output_of("env | grep TANDEM_X", {{"TANDEM_X", "first"}, {"TANDEM_X", "second"}}),
      "TANDEM_X=second\n");
}

TEST(Process, ReportsAProgramThatCannotBeExecuted) {
  const Scratch directory;
  const std::string path = directory / "data";
  replace_file(path, "text");
  const auto refusal = [](const std::string& program) {
    return error_of<ConfigError>([&] {
      const Process process({{program}, {}, false});
    });
  };
  expect_parts(refusal("no-such-program-here"), {"'no-such-program-here'", "PATH"});
  expect_parts(refusal(path), {path, "Permission denied"});
  expect_parts(refusal(directory.path()), {directory.path(), "Permission denied"});
  expect_parts(refusal(directory / "missing"), {"missing", "No such file"});
  // Executable by its mode, but not a program: no "#!", no ELF header.
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  expect_parts(refusal(path), {path, "Exec format"});
  replace_file(path, "#!/no/such/interpreter\n");
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  expect_parts(refusal(path), {path, "No such file"});
}

TEST(Process, IgnoresDirectoriesInPath) {
  const Scratch directory;
  make_directories(directory / "first/tool");
  make_directories(directory / "second");
  replace_file(directory / "second/tool", "#!/bin/sh\necho found\n");
  ASSERT_EQ(chmod((directory / "second/tool").c_str(), 0755), 0);
  const std::string path = getenv("PATH");
  const std::string longer = directory / "first" + ":" + directory / "second";
  setenv("PATH", (longer + ":" + path).c_str(), 1);
  EXPECT_EQ(run_command({"tool"}).output, "found\n");
  setenv("PATH", path.c_str(), 1);
}

TEST(Process, LeaksNothingIfItCannotStart) {
  const Scratch directory;
  replace_file(directory / "data", "text");
  ASSERT_EQ(chmod((directory / "data").c_str(), 0755), 0);
  const auto open_files = [] { return list_directory("/proc/self/fd").size(); };
  const size_t before = open_files();
  EXPECT_THROW(Process({{directory / "data"}, {}, true}), ConfigError);
  EXPECT_THROW(Process({{"no-such-program-here"}, {}, true}), ConfigError);
  EXPECT_EQ(open_files(), before);
}

TEST(Process, SignalsReachItsChildren) {
  const Scratch directory;
  Process process(
      {shell("sleep 30 & echo $! > " + directory / "pid" + "; wait"), {}, false});
  const int grandchild = number_in(directory / "pid");
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().signal, SIGTERM);
  EXPECT_TRUE(eventually([&] { return !is_running(grandchild); }));
}

TEST(Process, StartsWithNoSignalBlocked) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  EXPECT_EQ(output_of("kill -TERM $$; echo alive"), "");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Process, IsKilledAndReapedWithItsObject) {
  pid_t pid = 0;
  {
    const Process process({shell("trap '' TERM; sleep 30"), {}, false});
    pid = process.pid();
    EXPECT_TRUE(is_running(pid));
  }
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Process, MovesWithItsPipesAndStatus) {
  Process first({shell("echo text"), {}, true});
  Process second(std::move(first));
  EXPECT_TRUE(second.wait().ok());
  char buffer[100];
  EXPECT_EQ(read(second.output_fd(), buffer, sizeof(buffer)), 5);
  const Process third(std::move(second));
  EXPECT_GT(third.pid(), 0);
}

TEST(Process, IsKilledWhenTheThreadThatStartedItEnds) {
  std::optional<Process> process;
  std::thread starter([&] {
    process.emplace(ProcessOptions{{"sleep", "30"}, {}, false});
  });
  starter.join();
  EXPECT_EQ(process->wait().signal, SIGKILL);
}

TEST(Process, IsKilledWhenTheProcessThatStartedItDies) {
  const Scratch directory;
  Process parent(
      {{helper(), "start", "sh", "-c",
        "echo $$ > " + directory / "pid" + "; exec sleep 30"},
       {},
       false});
  const int child = number_in(directory / "pid");
  EXPECT_TRUE(is_running(child));
  kill(parent.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_running(child); }));
}

TEST(RunCommand, SeparatesOutputAndErrors) {
  const auto result = run_command(shell("echo out; echo err >&2; exit 4"));
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
  EXPECT_EQ(result.status.code, 4);
  EXPECT_GE(result.seconds, 0);
}

TEST(RunCommand, ReturnsMoreOutputThanAPipeHolds) {
  const auto result =
      run_command(shell("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"));
  EXPECT_EQ(result.output.size(), 3'000'000u);
  EXPECT_EQ(result.errors.size(), 2'000'000u);
}

// Runs a script that would take 30 s and must be stopped before.
CommandResult stop_early(const std::string& script) {
  const auto start = Clock::now();
  auto result = run_command(shell(script), {}, 0.2);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10)) << script;
  return result;
}

TEST(RunCommand, KillsAfterTheTimeout) {
  const auto result = stop_early("echo begun; sleep 30");
  EXPECT_EQ(result.status.signal, SIGKILL);
  EXPECT_EQ(result.output, "begun\n");
  // A command that closed its output, and a command that never stops printing.
  EXPECT_EQ(stop_early("exec >&- 2>&-; sleep 30").status.signal, SIGKILL);
  EXPECT_EQ(stop_early("exec yes").status.signal, SIGKILL);
}

TEST(RunCommand, DoesNotWaitForProcessesThatTheCommandStarted) {
  const Scratch directory;
  const std::string pid_file = directory / "pid";
  EXPECT_EQ(
      stop_early("echo done; setsid sleep 30 & echo $! > " + pid_file).output,
      "done\n");
  kill(number_in(pid_file), SIGKILL);
}

TEST(ExecProgram, KeepsTheProcessId) {
  Process process({{helper(), "exec", "sh", "-c", "echo $$ $ADDED"}, {}, true});
  EXPECT_TRUE(process.wait().ok());
  char buffer[100];
  const auto size = read(process.output_fd(), buffer, sizeof(buffer));
  ASSERT_GT(size, 0);
  EXPECT_EQ(
      std::string(buffer, static_cast<size_t>(size)),
      std::to_string(process.pid()) + " by exec\n");
}

TEST(ExecProgram, ThrowsIfItFails) {
  EXPECT_THROW(exec_program({"no-such-program-here"}, {}), ConfigError);
  const Scratch directory;
  replace_file(directory / "data", "text");
  ASSERT_EQ(chmod((directory / "data").c_str(), 0755), 0);
  EXPECT_THROW(exec_program({directory / "data"}, {}), ConfigError);
}

}  // namespace tandem::process_test
