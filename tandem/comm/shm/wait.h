#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/shm/region.h"

namespace tandem {

/// Waits for other ranks in three phases. The first phase polls, for about as long as a
/// peer on another core needs for its own step. The second phase yields the core to
/// other threads. In the third phase the rank sleeps on its bell until another rank
/// rings.
///
/// If another rank was last seen on the same core, the thread moves, once per wait, to
/// a core without a rank: its affinity is set for a moment and then restored. If there
/// is no such core, polling is useless and is skipped.
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
/// once more for new data, and only then call sleep(). If another rank writes data
/// after this check, it wakes this rank. See ShmRankBlock::sleeping for the reason.
class ShmSleeper {
 public:
  explicit ShmSleeper(ShmRankBlock& mine);
  ~ShmSleeper();
  ShmSleeper(const ShmSleeper&) = delete;
  ShmSleeper& operator=(const ShmSleeper&) = delete;

  /// Returns when another rank rings, after `limit`, or spuriously.
  void sleep(std::chrono::nanoseconds limit);

 private:
  ShmRankBlock& mine_;
  uint32_t seen_;
};

/// Rings (wakes) the sleeping ranks among `ranks`, except this one. Call it after
/// writing data for which they may wait.
void ring_sleepers(const ShmRegion& region, int rank, const std::vector<int>& ranks);

}  // namespace tandem
