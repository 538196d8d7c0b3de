#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>

#include "tandem/base/output.h"

namespace tandem {

/// Splits the output of one rank into lines with a prefix, so that lines of several
/// ranks do not mix. A line ends with '\n', or with '\r' as in a progress bar. A line
/// longer than 1 MiB is forwarded in pieces.
class LineCutter {
 public:
  explicit LineCutter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Adds output of the rank, and returns the lines that are complete.
  std::string take(const char* data, size_t size);

  /// Returns the incomplete last line with a newline; "" if there is none.
  std::string finish();

 private:
  std::string cut(size_t end);

  std::string prefix_;
  std::string rest_;
  bool in_line_ = false;
  bool after_return_ = false;
};

/// Queue of the ranks' output for the launcher's standard output or error, which may be
/// read slowly or not at all. No call waits.
///
/// The queue holds 1 MiB. While it is full(), the launcher does not read from the
/// ranks. They wait in their writes, as they would without a launcher, so no lines are
/// lost. A run that stops must not wait for a reader, because its ranks have to save.
/// After drop_from_now(), the oldest lines are dropped instead, and a line reports
/// their number.
class OutputQueue {
 public:
  /// `fd` belongs to the caller and must outlive the object.
  explicit OutputQueue(int fd) : outlet_(fd) {}

  /// Adds whole lines, or a piece of a long line.
  void add(std::string text);

  bool full() const {
    return bytes_ >= kMostBytes && !dropping_;
  }
  bool empty() const {
    return texts_.empty();
  }
  void drop_from_now() {
    dropping_ = true;
  }

  /// Returns an entry for poll() that waits for POLLOUT while there is text to write.
  pollfd entry() const {
    return {empty() ? -1 : outlet_.fd(), POLLOUT, 0};
  }

  /// Writes as much as the reader accepts now, and returns whether it accepted any.
  /// Text that cannot be written, because the reader is gone or the disk is full, is
  /// dropped, and the run continues.
  bool write();

 private:
  static constexpr size_t kMostBytes = 1 << 20;

  void make_room();
  // Returns the line that replaces dropped lines, "" if there are none.
  std::string note() const;

  Outlet outlet_;
  std::deque<std::string> texts_;
  size_t bytes_ = 0;
  // Number of bytes of the first text that are already written.
  size_t written_ = 0;
  // Number of dropped lines that note() has to report.
  int64_t dropped_ = 0;
  bool dropping_ = false;
};

}  // namespace tandem
