#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/shm/region.h"
#include "tandem/comm/shm/segments.h"

namespace tandem {

/// Interface of an object that has pending operations: the messages or the collectives
/// of a group.
class ShmProgress {
 public:
  virtual ~ShmProgress() = default;
  /// Advances the pending operations without blocking. Returns whether an operation has
  /// advanced.
  virtual bool progress() = 0;
};

/// One rank's state for a family. A family is the group that the ranks formed first,
/// and all groups that were split from it. The groups share the buffers of each rank,
/// and the region that is used for sleeping and for detecting dead ranks.
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

  /// Adds or removes a group's messages or collectives. While this rank waits in one
  /// group, its operations in all groups advance.
  void add(ShmProgress& group);
  void remove(ShmProgress& group);
  bool progress();

  /// Wakes the sleeping ranks among `ranks`, which are numbers in the family, and
  /// records the core on which this rank runs. Call it after writing data for those
  /// ranks.
  void ring(const std::vector<int>& ranks) const;

  /// Advances operations until `ended` returns true. Polls first, then yields, then
  /// sleeps (ShmWait). A sleep ends when another rank calls ring(), or after 20 ms.
  /// After every sleep, calls `awake`, and passes whether `limit` has passed since the
  /// first sleep.
  void wait(
      const std::function<bool()>& ended, std::chrono::milliseconds limit,
      const std::function<void(bool late)>& awake);

 private:
  std::shared_ptr<ShmRegion> region_;
  int rank_;
  int size_;
  std::shared_ptr<ShmSegments> segments_;
  std::vector<ShmProgress*> groups_;
};

}  // namespace tandem
