#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "tandem/base/program_clock.h"
#include "tandem/checkpoint/checkpoint.h"

namespace tandem {

/// Measures the training time and the samples per second, over all starts of a run. The
/// caller pauses the clock during evaluations and saves.
class RunClock {
 public:
  /// Adds the time until the checkpoint from which the run resumes.
  void continue_from(const RunTime& earlier) {
    seconds_ = lap_ = earlier.train_seconds;
    samples_ = earlier.samples;
    // After a restart, program_seconds() contains the time of earlier attempts.
    earlier_program_seconds_ = earlier.program_start == tandem::program_start()
                                   ? earlier.earlier_program_seconds
                                   : earlier.program_seconds;
  }

  /// Returns the time until now, for a checkpoint. `more_samples` is the number of
  /// samples since the last call of add().
  RunTime time(double more_samples) const {
    return {
        seconds_, samples_ + more_samples, program_seconds(), earlier_program_seconds_,
        tandem::program_start()};
  }

  void resume() {
    started_ = Clock::now();
  }

  void pause() {
    const auto now = Clock::now();
    seconds_ += std::chrono::duration<double>(now - started_).count();
    started_ = now;
  }

  /// Adds `samples`, the number of samples since the last call.
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
  /// Returns the time of all programs of the run, in seconds.
  double program_seconds() const {
    return earlier_program_seconds_ + tandem::program_seconds();
  }
  /// Returns the samples per second between the last two calls of add().
  double recent_rate() const {
    return recent_rate_;
  }
  /// Returns the samples per second of the whole run.
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
  double earlier_program_seconds_ = 0;
};

/// Measures the time for which saves paused this rank's training.
class SavePauses {
 public:
  using Clock = std::chrono::steady_clock;

  /// Adds a pause from `start` until now.
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

/// Measures the peak memory of this process, as PSS: a page that n processes share
/// counts as 1/n. The peak is the largest measurement of sample() and mib(). Not
/// thread-safe.
class PeakMemory {
 public:
  /// Measures the memory, at most once a second, and returns the peak in MiB. A
  /// measurement is slow, because the kernel reads all page tables of the process.
  double sample();

  /// Measures the memory and returns the peak in MiB; 0 if the kernel does not report
  /// PSS.
  double mib();

 private:
  using Clock = std::chrono::steady_clock;

  void look_now();

  Clock::time_point next_{};
  double mib_ = 0;
};

}  // namespace tandem
