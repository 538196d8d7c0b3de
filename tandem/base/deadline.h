#pragma once

#include <algorithm>
#include <chrono>

namespace tandem {

/// Point in time at which a wait times out. If several waits use one deadline, they
/// share its timeout, which is usually --timeout-seconds.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  explicit Deadline(Milliseconds time) : time_(time), end_(Clock::now() + time) {}

  /// Returns the timeout that was passed to the constructor, for error messages.
  Milliseconds time() const {
    return time_;
  }
  /// Returns the time until the deadline; zero after the deadline.
  Milliseconds left() const {
    return std::max(
        Milliseconds(0), std::chrono::duration_cast<Milliseconds>(end_ - Clock::now()));
  }
  bool passed() const {
    return Clock::now() >= end_;
  }

 private:
  Milliseconds time_;
  Clock::time_point end_;
};

}  // namespace tandem
