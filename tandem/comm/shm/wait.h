#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/shm/region.h"

namespace tandem {

/// How a rank waits for others: it looks again and again, for as long as a peer on
/// another core needs for a step of its own; then lets other threads have the core;
/// then sleeps on its bell until one of the others rings. Where another rank was last
/// seen on the same core, the thread moves, once per wait, to a core without a rank
/// (its affinity is set for a moment and then put back); if there is none, looking on
/// is of no use and left out.
class ShmWait {
 public:
  ShmWait(const ShmRegion& region, int rank, int size);

  void reset() {
    round_ = 0;
  }

  /// Whether it is time to sleep; otherwise has let a moment pass.
  bool pause();

 private:
  bool has_own_core();
  bool is_taken(int core) const;
  bool step_aside(int core) const;

  const ShmRegion& region_;
  int rank_;
  int size_;
  int64_t round_ = 0;
  bool stepped_aside_ = false;
};

/// Says on which core this rank is.
void note_core(const ShmRegion& region, int rank);

/// Says that this rank is about to sleep, until it goes out of scope. Look once more
/// for what is waited for before sleep(): what comes later rings.
class ShmSleeper {
 public:
  explicit ShmSleeper(ShmRankBlock& mine);
  ~ShmSleeper();
  ShmSleeper(const ShmSleeper&) = delete;
  ShmSleeper& operator=(const ShmSleeper&) = delete;

  /// Returns when rung, when the time has passed, or for no reason.
  void sleep(std::chrono::nanoseconds limit);

 private:
  ShmRankBlock& mine_;
  uint32_t seen_;
};

/// Rings those of `ranks` that sleep, but for this one; after it has written what they
/// may wait for.
void ring_sleepers(const ShmRegion& region, int rank, const std::vector<int>& ranks);

}  // namespace tandem
