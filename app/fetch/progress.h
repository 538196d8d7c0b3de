#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tandem::app {

/// A line of what is being done, on standard output, at once.
void say(const std::string& line);

/// "9.9 MB", "28.9 kB".
std::string bytes_text(int64_t bytes);

/// How far a file has come: a line on standard error that is written over, where that
/// is a terminal; nothing elsewhere.
class ProgressBar {
 public:
  /// `there`: what an earlier fetch brought, which does not count for the speed.
  ProgressBar(std::string name, int64_t size, int64_t there);
  /// Wipes the line out.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// A few times a second at most, however often it is called.
  void show(int64_t there);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string name_;
  const int64_t size_;
  int64_t first_;
  const bool visible_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_ - std::chrono::hours(1);
};

/// The line: a bar, percent, bytes and speed, `seconds` after `first` bytes were there.
std::string progress_line(
    const std::string& name, int64_t there, int64_t size, int64_t first,
    double seconds);

}  // namespace tandem::app
