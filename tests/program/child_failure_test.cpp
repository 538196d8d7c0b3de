// Errors of programs of tandem that other commands started and that failed: the message
// arrives even without their standard error.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "program.h"

namespace tandem::child_failure_test {

using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

// A copy of the program with a worker that is a shell script around the real worker.
class ChildFailure : public testing::Test {
 protected:
  ChildFailure() {
    fs::copy_file(program(), tandem_);
  }

  void before_the_worker(const std::string& lines) const {
    const auto path = scratch_ / "tandem-worker";
    replace_file(
        path,
        "#!/bin/sh\n" + lines + "\nexec '" + program("tandem-worker") + "' \"$@\"\n");
    fs::permissions(path, fs::perms::owner_all);
  }

  CommandResult run(const Arguments& arguments) const {
    return run_command(with({tandem_}, arguments), {}, 300);
  }

  CommandResult plan() const {
    return run({"plan", "--measure", "--data", scratch_ / "none"});
  }

  // A loss that is not finite ends the run.
  CommandResult compare(const std::string& nproc) const {
    const auto recipe = scratch_ / "broken.toml";
    replace_file(
        recipe, "model = \"simplenet\"\noptimizer = \"sgd\"\nlr = 1e36\nlimit = 640\n");
    return run(
        {"compare", recipe, "--data", "digits", "--set", "nproc=" + nproc, "--out",
         scratch_ / ("out" + nproc)});
  }

  const Scratch scratch_;
  const std::string tandem_ = scratch_ / "tandem";
};

const char* const kClosed = "exec 2>&-";
const char* const kNoisy =
    "echo 'libx: error: it matters not' >&2; echo 'tandem: error: nor this' >&2";

TEST_F(ChildFailure, ReachesAPlanWithoutStandardError) {
  for (const char* streams : {kClosed, kNoisy}) {
    before_the_worker(streams);
    const auto result = plan();
    expect_error_line(
        result, 2,
        {"error: [plan] tandem bench step: [data] data is '", scratch_ / "none"});
    EXPECT_THAT(result.errors, Not(HasSubstr("matters"))) << streams;
  }
}

TEST_F(ChildFailure, ReachesAComparisonWithoutStandardError) {
  for (const char* streams : {kClosed, kNoisy}) {
    before_the_worker(streams);
    for (const std::string nproc : {"1", "2"}) {
      const auto result = compare(nproc);
      EXPECT_EQ(result.status.code, 1);
      EXPECT_THAT(result.output, HasSubstr("broken failed: [train] the loss is"))
          << streams << nproc;
      remove_all(scratch_ / ("out" + nproc));
    }
  }
}

TEST_F(ChildFailure, ReachesABenchThroughMpirun) {
  TANDEM_NEEDS_MPI();
  for (const std::string streams : {kClosed, kNoisy}) {
    // Variables that another launcher may have set.
    before_the_worker("export RANK=0 WORLD_SIZE=x; " + streams);
    const auto result = run({"bench", "allreduce", "--backends", "mpi"});
    EXPECT_EQ(result.status.code, 2);
    EXPECT_THAT(
        result.errors,
        HasSubstr("error: [bench] mpirun failed: [env] WORLD_SIZE is 'x'"))
        << streams;
  }
}

TEST_F(ChildFailure, KeepsTheExitCodeOfMisuse) {
  before_the_worker("");
  const auto measured =
      run({"plan", "--measure", "--model", "simplenet", "--batch-size", "70000"});
  expect_exit(measured, 2, {"[plan] tandem bench step: [bench] the data"});
  const auto recipe = scratch_ / "lonely.toml";
  replace_file(recipe, "strategy = \"sequential\"\nnproc = 2\nlimit = 640\n");
  const auto compared =
      run({"compare", recipe, "--data", "digits", "--out", scratch_ / "out"});
  EXPECT_THAT(compared.output, HasSubstr("lonely skipped: ["));
}

TEST_F(ChildFailure, IsTheExitStatusIfTheChildLeavesNoReason) {
  before_the_worker("echo 'tandem: error: not this' >&2; kill -KILL $$");
  EXPECT_THAT(
      plan().errors,
      HasSubstr("error: [plan] tandem bench step: was killed by SIGKILL\n"));
  EXPECT_THAT(
      compare("1").output, HasSubstr("broken failed: it was killed by SIGKILL\n"));
  before_the_worker("exit 3");
  EXPECT_THAT(plan().errors, HasSubstr("tandem bench step: exited with code 3\n"));
  expect_parts(
      compare("2").output,
      {"broken failed: [launch] '",
       "tandem-worker' exited with code 3 before it was loaded\n"});
}

}  // namespace tandem::child_failure_test
