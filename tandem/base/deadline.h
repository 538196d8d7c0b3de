#pragma once

#include <algorithm>
#include <chrono>

namespace tandem {

/// When waiting ends. Several waits that share one together take no longer than its
/// time, which --timeout-seconds gives.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  explicit Deadline(Milliseconds time) : time_(time), end_(Clock::now() + time) {}

  /// All of it, for messages.
  Milliseconds time() const {
    return time_;
  }
  /// Zero once it has passed.
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
