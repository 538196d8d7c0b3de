#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/shm/region.h"

namespace tandem {

/// Waits for other ranks in three phases. The first phase polls for about 0.1 ms, the
/// time that waking a sleeping rank takes. The second phase yields the core to other
/// threads for about 1 ms. In the third phase, the rank sleeps until another rank rings
/// (ShmRankBlock::bell).
///
/// If another rank has recorded the same core, the thread moves to a core without a
/// rank, once per wait. To move, the thread sets its affinity and then restores it. If
/// there is no such core, the first phase is skipped, because polling would only delay
/// the other rank.
class ShmWait {
 public:
  ShmWait(const ShmRegion& region, int rank, int size);

  void reset() {
    round_ = 0;
  }

  /// Returns true if it is time to sleep. Otherwise polls or yields once and returns
  /// false.
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

/// Records the core on which this rank runs.
void note_core(const ShmRegion& region, int rank);

/// Marks this rank as sleeping while the object exists. Construct the object, check
/// once more for new data, and only then call sleep(). A rank that writes data after
/// this check wakes this rank. ShmRankBlock::sleeping explains this order.
class ShmSleeper {
 public:
  explicit ShmSleeper(ShmRankBlock& mine);
  ~ShmSleeper();
  ShmSleeper(const ShmSleeper&) = delete;
  ShmSleeper& operator=(const ShmSleeper&) = delete;

  /// Sleeps until another rank rings, but at most for `limit`. May return earlier.
  void sleep(std::chrono::nanoseconds limit);

 private:
  ShmRankBlock& mine_;
  uint32_t seen_;
};

/// Wakes the sleeping ranks among `ranks`, except `rank`, which is this rank. Call it
/// after writing data for which the ranks may wait.
void ring_sleepers(const ShmRegion& region, int rank, const std::vector<int>& ranks);

}  // namespace tandem
