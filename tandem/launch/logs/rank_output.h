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

  /// Adds output of the rank. Returns the lines that are now complete, with the prefix.
  std::string take(const char* data, size_t size);

  /// Returns the incomplete last line, with a newline added; "" if there is none.
  std::string finish();

 private:
  std::string cut(size_t end);

  std::string prefix_;
  std::string rest_;
  bool in_line_ = false;
  bool after_return_ = false;
};

/// Queue of the ranks' output for the launcher's standard output or error. The reader
/// of that stream may be slow or stopped, so no call waits.
///
/// The queue holds 1 MiB. While it is full(), the launcher does not read from the
/// ranks. The ranks then wait in their writes, as they would without a launcher, so no
/// lines are lost. If the run stops, the ranks must not wait for a reader, because they
/// have to save. After drop_from_now(), the queue therefore drops its oldest lines
/// instead of becoming full, and a line reports their number.
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

  /// Writes as much text as is possible without waiting. Returns whether any text was
  /// written. Drops text if the reader has closed the stream or the disk is full; the
  /// run then continues.
  bool write();

 private:
  static constexpr size_t kMostBytes = 1 << 20;

  void make_room();
  // Returns the line that reports the number of dropped lines; "" if no lines were
  // dropped.
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
