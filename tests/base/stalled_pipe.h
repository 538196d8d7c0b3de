#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace tandem {

/// A pipe whose reader does not read until it is asked to.
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

  /// Takes what is in it.
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
