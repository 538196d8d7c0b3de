#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tests/base/test_tools.h"

namespace tandem {

/// Waits until a pipe that no process reads is full. Returns false if the pipe does not
/// become full.
inline bool fills_up(int fd) {
  int before = 0;
  return eventually([&] {
    int bytes = 0;
    ioctl(fd, FIONREAD, &bytes);
    usleep(300'000);
    return bytes > 20'000 && std::exchange(before, bytes) == bytes;
  });
}

/// A pipe whose reader does not read until read() is called.
class StalledPipe {
 public:
  StalledPipe() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~StalledPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  StalledPipe(const StalledPipe&) = delete;
  StalledPipe& operator=(const StalledPipe&) = delete;

  int write_end() const {
    return ends_[1];
  }

  /// Reads and returns all bytes in the pipe.
  std::string read() const {
    std::string text;
    char buffer[1 << 12];
    for (ssize_t got = 0; (got = ::read(ends_[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int ends_[2]{};
};

}  // namespace tandem
