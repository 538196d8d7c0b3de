#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>

#include "tandem/base/descriptor.h"

namespace tandem {

/// Blocks SIGPIPE while the object exists, in this thread and in threads that this
/// thread starts.
///
/// tandem and LibTorch's transports may write to a connection that the other end has
/// closed, and SIGPIPE would end the process. The destructor discards a pending
/// SIGPIPE, unless SIGPIPE was already blocked before.
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

/// Output descriptor whose writes do not block if the reader is slow.
///
/// Other processes (a shell, the rank that owns the terminal) share the file
/// description. So O_NONBLOCK is not set: it would apply to them too, and remain after
/// this process is killed. Instead, a pipe or terminal is opened again through /proc,
/// which creates a separate description. A socket is written with MSG_DONTWAIT. Files
/// and devices never block.
///
/// A pipe or terminal of another user cannot be opened again. Each write is then
/// shorter than a pipe's buffer, and is made only if there is room. Such a write can
/// still block if another process fills the pipe after the check.
class Outlet {
 public:
  /// `fd` belongs to the caller and must outlive the object.
  explicit Outlet(int fd);

  /// Writes up to `size` bytes without waiting. Returns the number of bytes written, or
  /// -1 with errno, which is EAGAIN if there is no room. The caller must block SIGPIPE
  /// (NoSigpipe).
  ssize_t write_now(const char* data, size_t size);

  /// Returns the descriptor to poll for POLLOUT.
  int fd() const {
    return fd_;
  }

 private:
  enum class Method { plain, send, pieces };

  int fd_;
  // Descriptor of the pipe or terminal that was opened again, if any; equal to fd_.
  Descriptor own_;
  Method method_ = Method::plain;
};

/// Maximum time for which write_output() waits for a reader that reads nothing, if this
/// process has to stop.
constexpr std::chrono::milliseconds kReaderPatience(500);

/// Writes `text`; waits if the reader is slow. Thread-safe.
///
/// If a stop signal is pending or hurry_output() was called, this process has to stop,
/// and saving a checkpoint has priority. If the reader then reads nothing for
/// kReaderPatience, the call drops the rest of the text. Until a reader reads again,
/// later calls do not wait.
///
/// Returns 0, or an errno if text was lost: ETIMEDOUT if the call dropped it.
int write_output(int fd, const std::string& text);

/// Makes write_output() assume that this process has to stop. Safe in a signal handler.
void hurry_output();

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed.
///
/// Otherwise the next file, socket or shared memory would get the number of a standard
/// stream, and printed text would be written into it. Reading the opened descriptor
/// returns the end of the file; writing to it remains an error (EBADF).
///
/// Call it first in main(), before any file is opened. spawn(), launch(), join_run()
/// and train() call it for programs that did not. Throws Error if /dev/null cannot be
/// opened.
void reserve_standard_streams();

/// Writes `text` to `stream`, which is stdout or stderr, immediately and without
/// SIGPIPE. Waits for a slow reader as write_output() does. Returns 0, or an errno if
/// text was lost.
int print_now(std::FILE* stream, const std::string& text);

/// Ignores SIGPIPE in the whole process. Otherwise, SIGPIPE would end the process when
/// a reader closes the process's output. Output for that reader is lost. Programs that
/// this process starts inherit the setting, so do not call this function in a process
/// that starts other programs than tandem's.
void ignore_closed_readers();

/// Returns whether a descriptor is a terminal on which a line can be drawn again
/// ("\r\033[K"). Returns false if TERM is "dumb". Also returns false under mpirun,
/// which gives its ranks terminals even if its own output is a file.
bool is_terminal(int fd);

/// Returns the width of a terminal in characters; 0 if it is unknown.
int terminal_columns(int fd);

/// Kinds of emphasized text.
enum class Emphasis { error, warning, result };

/// Returns the text in red (error), yellow (warning) or bold (result). Returns the
/// unchanged text if is_terminal(fd) is false or NO_COLOR is not empty.
std::string emphasised(int fd, Emphasis emphasis, const std::string& text);

}  // namespace tandem
