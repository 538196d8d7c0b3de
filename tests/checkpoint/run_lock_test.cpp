#include "tandem/checkpoint/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "tests/base/test_tools.h"

namespace tandem::run_lock_test {

using testing::HasSubstr;
using testing::IsEmpty;

class RunLocks : public testing::Test {
 protected:
  std::string refusal() const {
    return error_of<ConfigError>([&] { const RunLock second(out_.path()); });
  }

  const Scratch out_;
};

TEST_F(RunLocks, RejectASecondRunAndNameTheFirst) {
  const RunLock first(out_.path());
  expect_parts(
      refusal(), {"another run writes to '" + out_.path() + "'",
                  "process " + std::to_string(getpid()) + " on host ", "--out"});
}

TEST_F(RunLocks, AreRemovedWithTheRun) {
  for (int i = 0; i < 3; ++i) {
    const RunLock lock(out_.path());
    EXPECT_TRUE(file_exists(out_ / "run.lock"));
  }
  EXPECT_THAT(list_directory(out_.path()), IsEmpty());
}

TEST_F(RunLocks, WaitForARunThatIsEnding) {
  auto first = std::make_unique<RunLock>(out_.path());
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first.reset();
  });
  EXPECT_NO_THROW(const RunLock second(out_.path()));
  ending.join();
}

TEST_F(RunLocks, EndWithAKilledProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(out_.path());
    [[maybe_unused]] const auto told = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(file_exists(out_ / "run.lock"));
  {
    const RunLock next(out_.path());
    EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(getpid())));
  }
  EXPECT_THAT(list_directory(out_.path()), IsEmpty());
  close(ready[0]);
  close(ready[1]);
}

}  // namespace tandem::run_lock_test
