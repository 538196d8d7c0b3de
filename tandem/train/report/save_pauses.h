#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tandem {

/// For how long saves had this rank's training stand still.
class SavePauses {
 public:
  using Clock = std::chrono::steady_clock;

  /// One that began at `start` and ends now.
  void add(Clock::time_point start) {
    const std::chrono::duration<double, std::milli> pause = Clock::now() - start;
    longest_ms_ = std::max(longest_ms_, pause.count());
    sum_ms_ += pause.count();
    ++count_;
  }

  double mean_ms() const {
    return count_ > 0 ? sum_ms_ / static_cast<double>(count_) : 0;
  }
  double longest_ms() const {
    return longest_ms_;
  }

 private:
  double longest_ms_ = 0;
  double sum_ms_ = 0;
  int64_t count_ = 0;
};

}  // namespace tandem
