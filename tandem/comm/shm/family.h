#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/shm/region.h"
#include "tandem/comm/shm/segments.h"

namespace tandem {

/// Interface of a group's messages and collectives: advances their pending operations
/// without blocking.
class ShmProgress {
 public:
  virtual ~ShmProgress() = default;
  /// Advances the pending operations. Returns whether anything changed.
  virtual bool progress() = 0;
};

/// One rank's state for a family: the group that the ranks formed first, and all groups
/// that were split from it. The groups share the region in which ranks sleep and their
/// deaths are detected, and the rank's buffers.
class ShmFamily {
 public:
  ShmFamily(std::shared_ptr<ShmRegion> region, int rank, int size);

  int rank() const {
    return rank_;
  }
  const ShmRegion& region() const {
    return *region_;
  }
  ShmSegments& segments() {
    return *segments_;
  }

  /// Adds a group's messages or collectives. While this rank waits in one group, its
  /// operations in all groups advance.
  void add(ShmProgress& group);
  void remove(ShmProgress& group);
  bool progress();

  /// Rings (wakes) the sleeping ranks among `ranks`, which are numbers in the family,
  /// and records this rank's core. Call it after writing data for those ranks.
  void ring(const std::vector<int>& ranks) const;

  /// Advances operations until `ended` returns true. Polls first, then yields, then
  /// sleeps (ShmWait). Calls `awake` after every sleep, which lasts 20 ms if no rank
  /// rings.
  void wait(const std::function<bool()>& ended, const std::function<void()>& awake);

 private:
  std::shared_ptr<ShmRegion> region_;
  int rank_;
  int size_;
  std::shared_ptr<ShmSegments> segments_;
  std::vector<ShmProgress*> groups_;
};

}  // namespace tandem
