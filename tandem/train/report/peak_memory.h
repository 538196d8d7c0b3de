#pragma once

#include <chrono>

namespace tandem {

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
