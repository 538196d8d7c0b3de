#pragma once

#include <algorithm>
#include <chrono>

namespace tandem {

/// Seconds of training, without evaluation and saving.
class RunClock {
 public:
  void resume() {
    started_ = Clock::now();
  }

  void pause() {
    const auto now = Clock::now();
    seconds_ += std::chrono::duration<double>(now - started_).count();
    started_ = now;
  }

  /// Counts samples up to now.
  void add(double samples) {
    const double before = lap_;
    pause();
    lap_ = seconds_;
    samples_ += samples;
    recent_rate_ = samples / std::max(1e-9, lap_ - before);
  }

  double seconds() const {
    return seconds_;
  }
  /// Samples per second since the last add(), and over all.
  double recent_rate() const {
    return recent_rate_;
  }
  double mean_rate() const {
    return seconds_ > 0 ? samples_ / seconds_ : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point started_ = Clock::now();
  double seconds_ = 0;
  double lap_ = 0;
  double samples_ = 0;
  double recent_rate_ = 0;
};

}  // namespace tandem
