#include "tandem/base/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "tandem/base/process.h"
#include "tests/base/test_tools.h"

namespace tandem::file_lock_test {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

const Deadline kLong(std::chrono::minutes(2));

TEST(FileLock, ExcludesAnotherHandle) {
  const Scratch directory;
  auto first = std::make_unique<FileLock>(directory / "lock", kLong);
  std::atomic<bool> second_holds{false};
  std::thread waiter([&] {
    const FileLock second(directory / "lock", kLong);
    second_holds = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(second_holds);
  first.reset();
  waiter.join();
  EXPECT_TRUE(second_holds);
}

TEST(FileLock, ExcludesAnotherProcess) {
  const Scratch directory;
  const std::string path = directory / "lock";
  const auto try_lock = [&] {
    return run_command({"flock", "--nonblock", path, "true"}).status.code;
  };
  {
    const FileLock lock(path, kLong);
    EXPECT_EQ(try_lock(), 1);
  }
  EXPECT_EQ(try_lock(), 0);
}

TEST(FileLock, WaitsForAnotherProcess) {
  const Scratch directory;
  const std::string path = directory / "lock";
  Process holder(
      {{"flock", path, "sh", "-c", "echo 1 > " + directory / "held" + "; sleep 30"},
       {},
       false});
  ASSERT_EQ(number_in(directory / "held"), 1);
  std::atomic<bool> held{false};
  std::thread waiter([&] {
    const FileLock lock(path, kLong);
    held = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(held);
  holder.signal(SIGKILL);
  waiter.join();
  EXPECT_TRUE(held);
}

TEST(FileLock, CreatesItsDirectory) {
  const Scratch directory;
  const FileLock lock(directory / "cache/data/lock", kLong);
  EXPECT_TRUE(file_exists(directory / "cache/data/lock"));
}

TEST(FileLock, ReportsAPathThatCannotBeLocked) {
  const Scratch directory;
  EXPECT_THAT(
      error_of<DataError>([&] { const FileLock lock(directory.path(), kLong); }),
      AllOf(
          HasSubstr("cannot lock"),
          EndsWith("Is a directory; choose a place that you may use")));
}

// The holder may be stopped forever.
TEST(FileLock, TimesOutAndNamesTheHolder) {
  const Scratch directory;
  const std::string path = directory / "lock";
  const FileLock holder(path, kLong);
  expect_error<DataError>(
      [&] { const FileLock lock(path, Deadline(std::chrono::milliseconds(50))); },
      {"process " + std::to_string(getpid()) + " on host ", "for 0.05 s",
       "--timeout-seconds"});
}

TEST(FileLock, LeavesAFileWithAnotherNameUnchanged) {
  const Scratch directory;
  replace_file(directory / "keys", "secret");
  std::filesystem::create_hard_link(directory / "keys", directory / "lock");
  const FileLock lock(directory / "lock", kLong);
  EXPECT_EQ(read_file(directory / "keys"), "secret");
}

}  // namespace tandem::file_lock_test
