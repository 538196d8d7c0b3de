// Log files, error files and the summary of the first failure under `tandem launch`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/parity/python.h"
#include "tests/program/program.h"

namespace tandem::launch_logs_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class LaunchLogs : public testing::Test {
 protected:
  CommandResult launch(
      const Arguments& flags, const Arguments& command, Variables variables = {}) {
    variables.emplace_back("TMPDIR", temporary_.path());
    return tandem_run(with({"launch"}, flags, command), variables);
  }
  CommandResult run_script(
      const Arguments& flags, const std::string& script,
      const Variables& variables = {}) {
    return launch(flags, {"sh", "-c", script}, variables);
  }
  CommandResult log_script(const Arguments& flags, const std::string& script) {
    return run_script(with({"--log-dir", scratch_ / "logs"}, flags), script);
  }

  // Path of a file of the only attempt of the only run.
  std::string logged(const std::string& name) const {
    const auto runs = list_directory(scratch_ / "logs");
    EXPECT_EQ(runs.size(), 1u);
    return scratch_ / "logs/" + runs.at(0) + "/attempt_0/" + name;
  }
  std::string text_of(const std::string& name) const {
    return read_file(logged(name));
  }

  const Scratch scratch_;
  const Scratch temporary_;
};

const std::string kBoth = "echo out $RANK; echo err $RANK >&2";

TEST_F(LaunchLogs, RedirectedStreamsAreInFilesAndNotOnTheConsole) {
  const auto result = checked(log_script({"--nproc=3", "--redirects=0:3,2:2"}, kBoth));
  EXPECT_THAT(
      sorted_lines(result.output), ElementsAre("[rank 1] out 1", "[rank 2] out 2"));
  EXPECT_EQ(result.errors, "[rank 1] err 1\n");
  EXPECT_THAT(list_directory(logged("0")), ElementsAre("stderr.log", "stdout.log"));
  EXPECT_THAT(list_directory(logged("1")), IsEmpty());
  EXPECT_THAT(list_directory(logged("2")), ElementsAre("stderr.log"));
  EXPECT_EQ(text_of("0/stdout.log"), "out 0\n");
  EXPECT_EQ(text_of("0/stderr.log"), "err 0\n");
  EXPECT_EQ(text_of("2/stderr.log"), "err 2\n");
}

TEST_F(LaunchLogs, TeedStreamsAreAlsoOnTheConsole) {
  const auto result = log_script({"--nproc=4", "-t", "3", "-r", "1"}, kBoth);
  EXPECT_EQ(sorted_lines(result.output).size(), 4u);
  EXPECT_EQ(sorted_lines(result.errors).size(), 4u);
  EXPECT_EQ(text_of("3/stdout.log"), "out 3\n");
  EXPECT_EQ(text_of("3/stderr.log"), "err 3\n");
}

TEST_F(LaunchLogs, OnlyChosenRanksAreOnTheConsole) {
  const auto result =
      log_script({"--nproc=4", "--tee=0:1,3:1", "--local-ranks-filter=1,3"}, kBoth);
  EXPECT_THAT(
      sorted_lines(result.output), ElementsAre("[rank 1] out 1", "[rank 3] out 3"));
  EXPECT_THAT(
      sorted_lines(result.errors), ElementsAre("[rank 1] err 1", "[rank 3] err 3"));
  EXPECT_EQ(text_of("0/stdout.log"), "out 0\n");
}

TEST_F(LaunchLogs, FilteredLinesOfAllRanksAreInOneFile) {
  log_script(
      {"--nproc=3", "--tee=0:1,2:1", "--duplicate-stdout-filters=loss"},
      "echo loss $RANK; echo time; echo loss >&2");
  EXPECT_THAT(
      sorted_lines(text_of("filtered_stdout.log")),
      ElementsAre("[rank 0] loss 0", "[rank 2] loss 2"));
}

TEST_F(LaunchLogs, AreInATemporaryDirectoryThatIsNamed) {
  const auto result = run_script({"--nproc=3", "--redirects=1"}, kBoth);
  EXPECT_THAT(result.errors, HasSubstr("the log files are in " + temporary_.path()));
  EXPECT_EQ(list_directory(temporary_.path()).size(), 1u);
}

TEST_F(LaunchLogs, RanksGetAnErrorFileThatIsRemovedAtAGoodEnd) {
  const auto result = run_script({"--nproc=3"}, "echo $TORCHELASTIC_ERROR_FILE");
  EXPECT_THAT(
      sorted_lines(result.output)[2],
      ContainsRegex("/none_[^/]+/attempt_0/2/error\\.json$"));
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(list_directory(temporary_.path()), IsEmpty());
}

TEST_F(LaunchLogs, AnExitCodeIsSummarizedAndWrittenToTheErrorFile) {
  const auto result = log_script({"--nproc=3"}, "[ $RANK = 1 ] && exit 3; sleep 60");
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors, AllOf(
                         HasSubstr("\nfirst failure: rank 1 (local rank 1)\n"),
                         HasSubstr("\n  status     : exited with code 3\n"),
                         HasSubstr("\n  error file : " + logged("1/error.json") + "\n"),
                         Not(HasSubstr("last "))));
  EXPECT_THAT(
      result.errors,
      ContainsRegex("=\ntandem: error: rank 1 [^\n]* exited with code 3[^\n]*\n$"));
  EXPECT_THAT(text_of("1/error.json"), HasSubstr("exited with code 3"));
  EXPECT_THAT(list_directory(logged("0")), IsEmpty());
  EXPECT_THAT(list_directory(logged("2")), IsEmpty());
}

TEST_F(LaunchLogs, ASignalIsSummarizedAndWrittenToTheErrorFile) {
  const auto result =
      log_script({"--nproc=4"}, "[ $RANK = 2 ] && kill -SEGV $$; exec sleep 60");
  EXPECT_THAT(result.errors, HasSubstr("\n  status     : was killed by SIGSEGV\n"));
  EXPECT_THAT(
      text_of("2/error.json"), HasSubstr("Signal 11 (SIGSEGV) received by PID "));
}

TEST_F(LaunchLogs, AnErrorOnStandardErrorIsSummarizedAndWrittenToTheErrorFile) {
  for (const auto* line :
       {"  what():  no such file", "tandem: error: no such file",
        "tandem: [rank 1] error: no such file"}) {
    remove_all(scratch_ / "logs");
    const auto result = log_script(
        {"--nproc=3"}, "[ $RANK = 1 ] && echo '" + std::string(line) +
                           "' >&2 && kill -ABRT $$; exec sleep 60");
    EXPECT_THAT(
        result.errors, AllOf(
                           HasSubstr("\n  status     : was killed by SIGABRT\n"
                                     "  error      : no such file\n"),
                           EndsWith("tandem: error: rank 1 failed: no such file\n")));
    EXPECT_THAT(text_of("1/error.json"), HasSubstr("\"message\":\"no such file\""));
  }
}

TEST_F(LaunchLogs, TheSummaryHasTheLastHiddenLines) {
  const std::string script = "seq -f \"line %g\" 30 >&2; echo out; exit $RANK";
  const auto result = log_script({"--nproc=3", "-r", "1:2,2:2"}, script);
  EXPECT_THAT(
      result.errors,
      AllOf(
          HasSubstr("  last 20 lines of standard error:\n    line 11\n"),
          HasSubstr("\n    line 30\n="), Not(HasSubstr("    line 10\n"))));
  const auto silent = run_script(
      {"--nproc=3", "--local-ranks-filter=0"}, "echo out; exit $((RANK / 2))");
  EXPECT_THAT(silent.errors, HasSubstr("  last line of standard output:\n    out\n="));
}

// The summary has the content of an error file that the launcher writes.
TEST_F(LaunchLogs, NoTemporaryDirectoryStaysAfterAFailure) {
  const auto result = run_script({"--nproc=3"}, "exit 5");
  EXPECT_THAT(
      result.errors,
      AllOf(HasSubstr("exited with code 5"), Not(HasSubstr("error file"))));
  EXPECT_THAT(list_directory(temporary_.path()), IsEmpty());
}

TEST_F(LaunchLogs, ATemporaryErrorFileOfARankStays) {
  const auto result = run_script(
      {"--nproc=3"},
      "echo '{\"message\": \"exited with code 5\"}' > $TORCHELASTIC_ERROR_FILE; exit "
      "5");
  const std::string mark = "error file : ";
  const auto files = lines_after(result.errors, mark);
  ASSERT_EQ(files.size(), 1u) << result.errors;
  EXPECT_THAT(files[0], StartsWith(temporary_.path()));
  EXPECT_THAT(read_file(files[0]), HasSubstr("exited with code 5"));
}

TEST_F(LaunchLogs, EachRestartHasItsOwnFiles) {
  const auto result = checked(log_script(
      {"--nproc=3", "--max-restarts=2", "--tee=1"},
      "echo try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || "
      "[ $RANK != 2 ] && exit 0; exit 1"));
  EXPECT_THAT(result.errors, Not(HasSubstr("first failure")));
  EXPECT_EQ(text_of("2/stdout.log"), "try 0\n");
  const auto run = parent_of(parent_of(logged("2")));
  EXPECT_EQ(read_file(run + "/attempt_1/2/stdout.log"), "try 1\n");
  EXPECT_THAT(list_directory(run), ElementsAre("attempt_0", "attempt_1"));
}

TEST_F(LaunchLogs, AStopSignalNeedsNoSummary) {
  const auto result =
      run_script({"--nproc=3"}, "[ $RANK = 0 ] && kill -TERM $PPID; exec sleep 60");
  EXPECT_EQ(result.errors, "tandem: error: stopped by SIGTERM\n");
  EXPECT_THAT(list_directory(temporary_.path()), IsEmpty());
}

TEST_F(LaunchLogs, OnlyTheHostOfTheFailedRankPrintsTheSummary) {
  const auto port = unused_port();
  const auto host = [&](const std::string& number) {
    return program() + " launch --nproc-per-node 2 --nnodes 2 --node-rank " + number +
           " --master-port " + port +
           " --timeout-seconds 60 sh -c '[ $RANK != 3 ] || exit 4; exec sleep 60' 2>" +
           scratch_ / number;
  };
  run_command({"sh", "-c", host("0") + " & " + host("1") + "; wait"});
  const std::string line = " exited with code 4; the other ranks were stopped\n";
  EXPECT_THAT(
      read_file(scratch_ / "0"), AllOf(StartsWith("tandem: error: "), EndsWith(line)));
  EXPECT_THAT(
      read_file(scratch_ / "1"),
      AllOf(HasSubstr("\nfirst failure: rank 3 (local rank 1)\n"), EndsWith(line)));
}

TEST_F(LaunchLogs, TheLauncherPassesItsErrorFileOn) {
  const auto file = scratch_ / "launcher.json";
  run_script({"--nproc=3"}, "exit 5", {{"TORCHELASTIC_ERROR_FILE", file}});
  EXPECT_THAT(read_file(file), HasSubstr("exited with code 5"));
}

TEST_F(LaunchLogs, TheErrorLineHasTheMessageOfTheErrorFile) {
  const auto result = run_script(
      {"--nproc=4"},
      "[ $RANK = 3 ] || exec sleep 60; "
      "printf '{\"message\": {\"message\": \"ValueError: x\\\\ny\", \"extraInfo\": "
      "{}}}' > "
      "$TORCHELASTIC_ERROR_FILE; exit 1");
  EXPECT_THAT(
      result.errors, EndsWith("\ntandem: error: rank 3 failed: ValueError: x\n"));
}

TEST_F(LaunchLogs, PythonsRecordWritesTheErrorFile) {
  TANDEM_NEEDS_PYTHON_TORCH();
  replace_file(
      scratch_ / "fails.py",
      "import os, time\n"
      "from torch.distributed.elastic.multiprocessing.errors import record\n"
      "@record\n"
      "def main():\n"
      "    if os.environ['RANK'] == '1':\n"
      "        raise RuntimeError('no batch')\n"
      "    time.sleep(60)\n"
      "main()\n");
  const auto result = launch(
      {"--nproc=3", "--redirects=3"}, {scratch_ / "fails.py"},
      {{"PYTHON_EXEC", python()}});
  EXPECT_THAT(
      result.errors,
      AllOf(
          HasSubstr("\n    RuntimeError: no batch\n"),
          EndsWith("\ntandem: error: rank 1 failed: RuntimeError: no batch\n")));
}

TEST_F(LaunchLogs, EachUserSignalReachesTheRanks) {
  for (const std::string name : {"USR1", "USR2"}) {
    const auto result = checked(run_script(
        {"--nproc=3"}, "trap 'echo got; exit 0' " + name + "; touch " +
                           scratch_ / name + "$RANK; while ! [ -e " + scratch_ / name +
                           "2 ] || ! [ -e " + scratch_ / name +
                           "1 ]; do sleep 0.01; done; [ $RANK = 0 ] && kill -" + name +
                           " $PPID; while :; do sleep 0.01; done"));
    EXPECT_EQ(sorted_lines(result.output).size(), 3u);
  }
}

}  // namespace tandem::launch_logs_test
