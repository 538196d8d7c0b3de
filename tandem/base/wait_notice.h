#pragma once

#include <chrono>
#include <string>

namespace tandem {

/// Schedule of the messages of a process that waits for other processes. The first
/// message is due 5 s after `start`. A further message is due when its text has
/// changed, or 60 s after the previous message.
class WaitNotice {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitNotice(Clock::time_point start = Clock::now())
      : first_(start + std::chrono::seconds(5)) {}

  /// Returns whether to print `line`, which names the missing processes, at the time
  /// `now`. If the result is true, the caller has to print the line.
  bool is_due(const std::string& line, Clock::time_point now = Clock::now()) {
    if (now < first_ || (line == printed_ && now < again_)) {
      return false;
    }
    printed_ = line;
    again_ = now + std::chrono::seconds(60);
    return true;
  }

 private:
  Clock::time_point first_;
  Clock::time_point again_;
  std::string printed_;
};

}  // namespace tandem
