#include "tandem/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/no_sigpipe.h"
#include "tandem/base/output.h"

namespace tandem {

void reserve_standard_streams() {
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
  // What others printed comes before it.
  if (std::fflush(stream) != 0) {
    return errno;
  }
  const int reason = write_output(fileno(stream), text);
  if (reason != 0 && reason != ETIMEDOUT) {
    // So that the stream knows of its error, too.
    std::fputc('\n', stream);
    std::fflush(stream);
  }
  return reason;
}

void ignore_closed_readers() {
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace tandem
