#pragma once

#include <chrono>
#include <string>

namespace tandem {

/// Decides when a process that waits for others says so: first after 5 s, then when it
/// waits for others than before, and every 60 s.
class WaitNotice {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitNotice(Clock::time_point start = Clock::now())
      : first_(start + std::chrono::seconds(5)) {}

  /// Whether to print `line`, which says what is missing, at `now`. If so, the line
  /// counts as printed.
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
