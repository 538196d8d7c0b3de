#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace tandem {

/// A descriptor for output, written without ever waiting for its reader.
///
/// Others share its file description (a shell, the rank that owns the terminal), so
/// O_NONBLOCK is not set on it: that would be theirs too, and outlive us when we are
/// killed. A pipe or terminal is opened once more through /proc instead, which gives a
/// description of our own; a socket is sent to with MSG_DONTWAIT; files and devices
/// never wait. Where a pipe or terminal cannot be opened again (another user's), less
/// than a pipe's buffer is written at a time, and only when there is room: a write can
/// then still wait if somebody else takes the room in between.
class Outlet {
 public:
  /// `fd` stays the caller's and must outlive the object.
  explicit Outlet(int fd);
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  /// Bytes taken, or -1 with errno; EAGAIN when there is no room. The caller blocks
  /// SIGPIPE (no_sigpipe.h).
  ssize_t write_now(const char* data, size_t size);

  /// What to poll for POLLOUT.
  int fd() const {
    return fd_;
  }

 private:
  enum class Way { plain, send, pieces };

  int fd_;
  bool owned_ = false;
  Way way_ = Way::plain;
};

/// How long a process that was told to stop waits for a reader who takes nothing.
constexpr std::chrono::milliseconds kReaderPatience(500);

/// Writes all of `text`, and waits for a reader who is slow. Once this process was told
/// to stop (a stop signal that came or is pending, hurry_output()), a reader who takes
/// nothing for kReaderPatience costs the rest, and what follows waits no more: saving
/// comes first. Returns 0, or the errno of text that was lost; ETIMEDOUT for that. Any
/// thread.
int write_output(int fd, const std::string& text);

/// From now on output waits as described above. Safe in a signal handler.
void hurry_output();

}  // namespace tandem
