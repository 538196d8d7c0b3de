#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

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

/// This process's memory (PSS, in which a page that n processes share counts as
/// 1/n) at its highest, as far as it was looked at. For one thread.
class PeakMemory {
 public:
  /// Reads /proc, at most once a second: it walks the page tables.
  void look();

  /// 0 where the kernel does not tell.
  double mib();

 private:
  using Clock = std::chrono::steady_clock;

  void look_now();

  Clock::time_point next_{};
  double mib_ = 0;
};

}  // namespace tandem
