#pragma once

#include <algorithm>
#include <chrono>

namespace tandem {

/// The time at which waiting ends. Several waits that share a deadline together take no
/// longer than its time, which --timeout-seconds sets.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  explicit Deadline(Milliseconds time) : time_(time), end_(Clock::now() + time) {}

  /// Total time, for messages.
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
