#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>

namespace tandem {

/// Blocks SIGPIPE for this thread, and for the threads that it starts meanwhile.
///
/// tandem and LibTorch's transports may write to a connection that the other end has
/// closed, and SIGPIPE would end the process. The destructor discards a SIGPIPE that
/// came meanwhile.
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

/// A descriptor for output that never blocks on its reader.
///
/// Other processes share its file description (a shell, the rank that owns the
/// terminal), so O_NONBLOCK is not set on it: it would apply to them too, and stay if
/// this process is killed. A pipe or terminal is opened again through /proc instead,
/// which creates a separate description. A socket is written with MSG_DONTWAIT. Files
/// and devices never block. If a pipe or terminal cannot be opened again (it belongs to
/// another user), each write is shorter than a pipe's buffer and is made only if there
/// is room. Such a write can still block if another process fills the pipe in between.
class Outlet {
 public:
  /// `fd` belongs to the caller and must outlive the object.
  explicit Outlet(int fd);
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  /// Returns the number of bytes written, or -1 with errno; EAGAIN if there is no room.
  /// The caller blocks SIGPIPE (NoSigpipe).
  ssize_t write_now(const char* data, size_t size);

  /// Descriptor to poll for POLLOUT.
  int fd() const {
    return fd_;
  }

 private:
  enum class Method { plain, send, pieces };

  int fd_;
  bool owned_ = false;
  Method method_ = Method::plain;
};

/// Longest wait, in a process that is to stop, for a reader that accepts nothing.
constexpr std::chrono::milliseconds kReaderPatience(500);

/// Writes all of `text`, and waits for a slow reader. Thread-safe.
///
/// Once this process is to stop (a stop signal came or is pending, or hurry_output()
/// was called), the rest of the text is dropped if the reader accepts nothing for
/// kReaderPatience, and later calls no longer wait: saving has priority. Returns 0, or
/// the errno for text that was lost, ETIMEDOUT if it was dropped.
int write_output(int fd, const std::string& text);

/// Makes write_output() behave as in a process that is to stop. Safe in a signal
/// handler.
void hurry_output();

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed.
///
/// Otherwise the next file, socket or shared memory would get its number, and printed
/// text would be written into it. Reading standard input then returns the end of the
/// file, and writing stays an error (EBADF).
///
/// Call it first in main(), before anything is opened. spawn(), launch(), join_run()
/// and train() call it for programs that did not. Throws Error if /dev/null cannot be
/// opened.
void reserve_standard_streams();

/// Writes to standard output or error immediately, without SIGPIPE. It waits for a
/// reader that stalls until this process is to stop. Returns 0, or the errno for text
/// that was lost.
int print_now(std::FILE* stream, const std::string& text);

/// Makes the process survive a reader that closes its output, whatever code prints. The
/// output for that reader is lost. Programs started by exec inherit this, so call it
/// only before starting tandem's own programs.
void ignore_closed_readers();

}  // namespace tandem
