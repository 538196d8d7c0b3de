#include "tandem/data/images/child_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::child_work_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kCount = 40;

std::string path_of(int64_t i) {
  return "file-" + std::to_string(i);
}

// Runs the work for kCount files.
void run(
    const std::function<void(int64_t)>& work,
    Deadline::Milliseconds timeout = std::chrono::minutes(1)) {
  run_in_children({kCount, work, &path_of}, Deadline(timeout));
}

std::string refusal(const std::function<void(int64_t)>& work) {
  return error_of<DataError>([&] { run(work); });
}

TEST(ChildWork, ProcessesEachFileOnce) {
  const SharedMemory memory(kCount);
  run([&](int64_t i) { memory.data()[i] += static_cast<uint8_t>(i); });
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(memory.data()[i], i);
  }
}

TEST(ChildWork, NamesTheFileThatCrashesAChild) {
  EXPECT_THAT(
      refusal([](int64_t i) {
        if (i == 23) {
          // The default action, also if a sanitizer handles the signal.
          signal(SIGSEGV, SIG_DFL);
          raise(SIGSEGV);
        }
      }),
      AllOf(
          HasSubstr("'file-23' was killed by SIGSEGV"), HasSubstr("check or remove")));
  EXPECT_THAT(
      refusal([](int64_t i) {
        if (i == 0) {
          kill(getpid(), SIGKILL);
        }
      }),
      HasSubstr("'file-0' was killed by SIGKILL"));
  EXPECT_THAT(
      refusal([](int64_t i) {
        if (i == kCount - 1) {
          _exit(3);
        }
      }),
      HasSubstr("'file-39' exited with code 3"));
}

TEST(ChildWork, ReportsTheFirstFileWithAnError) {
  // The later error occurs first.
  const auto work = [](int64_t i) {
    if (i == 20) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (i == 20 || i == 21) {
      throw DataError("[data] error of " + path_of(i));
    }
  };
  EXPECT_EQ(refusal(work), "[data] error of file-20");
}

TEST(ChildWork, EndsAChildThatDoesNotFinishAFile) {
  const auto work = [](int64_t i) {
    while (i == 5) {
      pause();
    }
  };
  expect_error<DataError>(
      [&] { run(work, std::chrono::milliseconds(200)); },
      {"decoding 'file-5' has not ended within 0.2 s"});
}

}  // namespace tandem::child_work_test
