#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "tandem/comm/shm/region.h"

namespace tandem {

/// How a rank waits for others: it looks again and again, for as long as a peer on
/// another core needs for a step of its own; then it lets other threads have the core;
/// then it sleeps on its bell until one of the others rings. Where another rank was
/// last seen on the same core, the thread moves, once per wait, to a core without a
/// rank (its affinity is set for a moment and then put back). If there is no such core,
/// looking on is of no use and is left out.
class ShmWait {
 public:
  ShmWait(const ShmRegion& region, int rank, int size);

  void reset() {
    round_ = 0;
  }

  /// Returns true when it is time to sleep; otherwise lets a moment pass.
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

/// Says, while it lives, that this rank is about to sleep. Before sleep() the caller
/// looks once more for what it waits for: what comes after that look rings. See
/// ShmRankBlock::sleeping for why.
class ShmSleeper {
 public:
  explicit ShmSleeper(ShmRankBlock& mine);
  ~ShmSleeper();
  ShmSleeper(const ShmSleeper&) = delete;
  ShmSleeper& operator=(const ShmSleeper&) = delete;

  /// Returns when another rank rings, when the time has passed, or for no reason.
  void sleep(std::chrono::nanoseconds limit);

 private:
  ShmRankBlock& mine_;
  uint32_t seen_;
};

/// Rings those of `ranks` that sleep, but for this one. To be called after what they
/// may wait for is written.
void ring_sleepers(const ShmRegion& region, int rank, const std::vector<int>& ranks);

}  // namespace tandem
