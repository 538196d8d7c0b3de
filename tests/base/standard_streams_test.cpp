#include "tandem/base/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "tandem/base/log.h"
#include "tests/base/test_tools.h"

namespace tandem::standard_streams_test {

// Returns the write end of a pipe without a reader.
int broken_pipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  return ends[1];
}

bool is_dev_null(int fd) {
  char path[100] = {};
  const auto link = "/proc/self/fd/" + std::to_string(fd);
  return readlink(link.c_str(), path, sizeof(path) - 1) > 0 &&
         std::string(path) == "/dev/null";
}

class ClosedDescriptors : public testing::TestWithParam<int> {};

TEST_P(ClosedDescriptors, AreReservedSoThatNoFileGetsThem) {
  const int closed = GetParam();
  const int code = code_of_child([=] {
    // Every open stream is this pipe, whatever the test inherited.
    for (const int fd : {0, 1, 2}) {
      dup2(broken_pipe(), fd);
    }
    for (const int fd : {0, 1, 2}) {
      if ((closed >> fd & 1) != 0) {
        close(fd);
      }
    }
    reserve_standard_streams();
    for (const int fd : {0, 1, 2}) {
      if (is_dev_null(fd) != ((closed >> fd & 1) != 0)) {
        return 10 + fd;
      }
      // A program started by exec inherits it.
      if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) {
        return 20 + fd;
      }
    }
    return open("/dev/zero", O_RDONLY) > 2 ? 0 : 30;
  });
  EXPECT_EQ(code, 0);
}

INSTANTIATE_TEST_SUITE_P(InAllCombinations, ClosedDescriptors, testing::Range(0, 8));

TEST(StandardStreams, WritingToAClosedStreamStaysAnError) {
  const int code = code_of_child([] {
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    reserve_standard_streams();
    char byte = 0;
    const bool at_end = read(STDIN_FILENO, &byte, 1) == 0;
    return at_end ? print_now(stdout, "lost\n") : -1;
  });
  EXPECT_EQ(code, EBADF);
}

TEST(StandardStreams, PrintNowWritesImmediately) {
  Scratch dir;
  std::FILE* file = std::fopen((dir / "out").c_str(), "w");
  EXPECT_EQ(print_now(file, "one\n"), 0);
  EXPECT_EQ(read_file(dir / "out"), "one\n");
  std::fclose(file);
}

TEST(StandardStreams, PrintNowReturnsAnErrnoInsteadOfASignal) {
  std::FILE* full = std::fopen("/dev/full", "w");
  // Also more than a buffer holds.
  for (const size_t size : {5, 100'000}) {
    EXPECT_EQ(print_now(full, std::string(size, 'x')), ENOSPC);
  }
  std::fclose(full);
  const int code = code_of_child([] {
    dup2(broken_pipe(), STDOUT_FILENO);
    const int lost = print_now(stdout, "lost\n");
    sigset_t waiting;
    sigpending(&waiting);
    return sigismember(&waiting, SIGPIPE) == 1 ? 100 : lost;
  });
  EXPECT_EQ(code, EPIPE);
}

TEST(StandardStreams, ALogLineWithoutAReaderDoesNotEndTheProcess) {
  const int code = code_of_child([] {
    dup2(broken_pipe(), STDERR_FILENO);
    log_error("lost");
    return std::ferror(stderr) != 0 ? 7 : 8;
  });
  EXPECT_EQ(code, 7);
}

TEST(StandardStreams, IgnoreClosedReadersKeepsTheProcess) {
  const auto write_without_reader = [] {
    return write(broken_pipe(), "x", 1) < 0 ? errno : 0;
  };
  EXPECT_EQ(code_of_child(write_without_reader), 1000 + SIGPIPE);
  EXPECT_EQ(
      code_of_child([&] {
        ignore_closed_readers();
        return write_without_reader();
      }),
      EPIPE);
}

}  // namespace tandem::standard_streams_test
