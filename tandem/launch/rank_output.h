#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>

#include "tandem/base/output.h"

namespace tandem {

/// Cuts what one rank prints into lines, so that those of several ranks do not mix, and
/// puts a prefix before each. A line ends with '\n', or with '\r' as those of a
/// progress bar do, which wait for no newline. One longer than 1 MiB goes on in
/// pieces.
class LineCutter {
 public:
  explicit LineCutter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// What can be passed on now that these bytes have come.
  std::string take(const char* data, size_t size);

  /// The rest, with the newline that it lacks.
  std::string finish();

 private:
  std::string cut(size_t end);

  std::string prefix_;
  std::string rest_;
  bool in_line_ = false;
  bool after_return_ = false;
};

/// What ranks printed, on its way to our standard output or error, which may be read
/// slowly or by nobody. Nothing here waits.
///
/// It holds 1 MiB. When it is full() the launcher reads no more of what the ranks
/// print, and they wait in their own writes, as they would without a launcher, and as a
/// service does whose journal stalls: no line of a healthy run is lost. A run that is
/// to end must not wait for a reader, since its ranks have to save: after
/// drop_from_now() the oldest lines make room, and one line in their place says how
/// many they were.
class OutputQueue {
 public:
  /// `fd` stays the caller's and must outlive the object.
  explicit OutputQueue(int fd) : outlet_(fd) {}

  /// Whole lines, or a piece of a long one.
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

  /// For poll(): asks for POLLOUT while there is something to write.
  pollfd entry() const {
    return {empty() ? -1 : outlet_.fd(), POLLOUT, 0};
  }

  /// Writes what is taken now; whether that was anything. What cannot be written
  /// because nobody reads it any more, or the disk is full, is gone: the ranks' work
  /// still counts.
  bool write();

 private:
  static constexpr size_t kMostBytes = 1 << 20;

  void make_room();
  // What stands for the lines that were dropped, "" for none.
  std::string note() const;

  Outlet outlet_;
  std::deque<std::string> texts_;
  size_t bytes_ = 0;
  // Of the first text.
  size_t written_ = 0;
  int64_t dropped_ = 0;
  bool dropping_ = false;
};

}  // namespace tandem
