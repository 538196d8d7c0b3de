#include "tandem/base/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"

namespace tandem {

namespace {

constexpr int kSliceMs = 50;

std::atomic<bool> hurried{false};
std::atomic<bool> gave_up{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Also checks pending signals, because a caller may block signals to handle them later.
bool is_told_to_stop() {
  return hurried || pending_stop_signal() != 0;
}

bool has_room(int fd, int wait_ms) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, wait_ms) > 0;
}

int open_again(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool can_write(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

const char* code_of(Emphasis emphasis) {
  switch (emphasis) {
    case Emphasis::error:
      return "\033[31m";
    case Emphasis::warning:
      return "\033[33m";
    case Emphasis::result:
      break;
  }
  return "\033[1m";
}

}  // namespace

Outlet::Outlet(int fd) : fd_(fd) {
  struct stat info {};
  // If the descriptor is not writable, write_now() returns the error of write().
  if (!can_write(fd) || fstat(fd, &info) != 0) {
    return;
  }
  if (S_ISSOCK(info.st_mode)) {
    method_ = Method::send;
  } else if (S_ISFIFO(info.st_mode) || isatty(fd) == 1) {
    own_ = Descriptor(open_again(fd));
    fd_ = own_ ? own_.fd() : fd;
    method_ = own_ ? Method::plain : Method::pieces;
  }
}

ssize_t Outlet::write_now(const char* data, size_t size) {
  switch (method_) {
    case Method::send:
      return send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    case Method::pieces:
      if (!has_room(fd_, 0)) {
        errno = EAGAIN;
        return -1;
      }
      return write(fd_, data, std::min<size_t>(size, PIPE_BUF));
    case Method::plain:
      break;
  }
  return write(fd_, data, size);
}

int write_output(int fd, const std::string& text) {
  const NoSigpipe quiet;
  Outlet outlet(fd);
  size_t done = 0;
  int waited_ms = 0;
  while (done < text.size()) {
    const ssize_t written = outlet.write_now(text.data() + done, text.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
      waited_ms = 0;
      gave_up = false;
    } else if (written < 0 && errno != EAGAIN && errno != EINTR) {
      return errno;
    } else if (is_told_to_stop() && (gave_up || waited_ms >= kReaderPatience.count())) {
      gave_up = true;
      return ETIMEDOUT;
    } else if (!has_room(outlet.fd(), kSliceMs) && is_told_to_stop()) {
      waited_ms += kSliceMs;
    }
  }
  return 0;
}

void hurry_output() {
  hurried = true;
}

void reserve_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) {
      continue;
    }
    // open() uses the lowest free number, which is `fd`. The file is read-only, so that
    // printing still fails.
    if (open("/dev/null", O_RDONLY) < 0) {
      throw Error(
          "[files] descriptor " + std::to_string(fd) +
          " is closed and '/dev/null' cannot be opened instead: " +
          std::strerror(errno) + "; open the descriptor, or make /dev/null readable");
    }
  }
}

int print_now(std::FILE* stream, const std::string& text) {
  const NoSigpipe quiet;
  // Writes text that is still in the stream's buffer first.
  if (std::fflush(stream) != 0) {
    return errno;
  }
  const int reason = write_output(fileno(stream), text);
  if (reason != 0 && reason != ETIMEDOUT) {
    // Also sets the error state of the stream.
    std::fputc('\n', stream);
    std::fflush(stream);
  }
  return reason;
}

void ignore_closed_readers() {
  std::signal(SIGPIPE, SIG_IGN);
}

bool is_terminal(int fd) {
  return isatty(fd) == 1 && get_env("TERM").value_or("") != "dumb" &&
         !get_env("OMPI_COMM_WORLD_SIZE");
}

int terminal_columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string emphasised(int fd, Emphasis emphasis, const std::string& text) {
  const bool colors = is_terminal(fd) && get_env("NO_COLOR").value_or("").empty();
  return colors ? code_of(emphasis) + text + "\033[0m" : text;
}

}  // namespace tandem
