#include "tandem/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/no_sigpipe.h"

namespace tandem {

void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) {
      continue;
    }
    // open() takes the lowest free number: this one. For reading only, so that whoever
    // prints still learns that nothing arrives.
    if (open("/dev/null", O_RDONLY) < 0) {
      throw Error(
          "[files] descriptor " + std::to_string(fd) +
          " is closed and '/dev/null' cannot take its place: " + std::strerror(errno) +
          "; open one of the two");
    }
  }
}

int print_now(std::FILE* stream, const std::string& text) {
  const NoSigpipe quiet;
  const bool taken = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  const int reason = taken ? 0 : errno;
  return std::fflush(stream) == 0 ? reason : errno;
}

void outlive_readers() {
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace tandem
