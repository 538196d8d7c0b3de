#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>

namespace tandem {

/// We and LibTorch's transports may write to what was closed at the other end, and the
/// SIGPIPE from that would end the process. While one of these lives, this thread gets
/// none, and the threads that it starts never do; the destructor discards one that has
/// come meanwhile.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 0) {
      const timespec now{};
      sigtimedwait(&pipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

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
  /// SIGPIPE (NoSigpipe).
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

/// Opens /dev/null for those of descriptors 0, 1 and 2 that are closed. Otherwise the
/// next file, socket or shared memory would get the number, and what is printed would
/// be written into it. Standard input is then at its end, and writing stays an error
/// (EBADF).
///
/// Call it first in main(), before anything is opened; spawn(), launch(), join_run()
/// and train() do it again for programs that did not. Throws Error without /dev/null.
void reserve_standard_streams();

/// Writes to standard output or error at once, without SIGPIPE. A reader who stalls is
/// waited for until this process is told to stop. Returns 0, or the errno of
/// text that was lost.
int print_now(std::FILE* stream, const std::string& text);

/// From now on a reader that has gone costs the output meant for it, not this process,
/// whatever code prints. Programs started by exec inherit this: use it only before our
/// own.
void ignore_closed_readers();

}  // namespace tandem
