#pragma once

#include <algorithm>
#include <chrono>

namespace tandem {

/// Point in time at which waiting ends. Several waits that share one deadline do not
/// add their timeouts. The time until the deadline is usually --timeout-seconds.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  explicit Deadline(Milliseconds time) : time_(time), end_(Clock::now() + time) {}

  /// Time from construction to the deadline, for messages.
  Milliseconds time() const {
    return time_;
  }
  /// Remaining time, zero after the deadline.
  Milliseconds left() const {
    return std::max(
        Milliseconds(0), std::chrono::duration_cast<Milliseconds>(end_ - Clock::now()));
  }
  bool passed() const {
    return Clock::now() >= end_;
  }
  Clock::time_point end() const {
    return end_;
  }

 private:
  Milliseconds time_;
  Clock::time_point end_;
};

}  // namespace tandem
