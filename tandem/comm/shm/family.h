#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/shm/region.h"
#include "tandem/comm/shm/segments.h"

namespace tandem {

/// Something that can make progress without waiting.
class ShmProgress {
 public:
  virtual ~ShmProgress() = default;
  /// Returns whether anything changed.
  virtual bool progress() = 0;
};

/// A rank among all ranks that met. Groups that were split from them share it: the
/// region in which the rank sleeps and dies, and its buffers.
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

  /// Adds a group. While a rank waits in one group, it makes progress in all of them.
  void add(ShmProgress& group);
  void remove(ShmProgress& group);
  bool progress();

  /// Rings all ranks of `ranks` (numbered in the family) that sleep, after data were
  /// written for them, and records this rank's core.
  void ring(const std::vector<int>& ranks) const;

  /// Makes progress until `ended`: polls, yields, then sleeps (see ShmWait). After
  /// every sleep, which takes 20 ms if no rank rings, it calls `awake`.
  void wait(const std::function<bool()>& ended, const std::function<void()>& awake);

 private:
  std::shared_ptr<ShmRegion> region_;
  int rank_;
  int size_;
  std::shared_ptr<ShmSegments> segments_;
  std::vector<ShmProgress*> groups_;
};

}  // namespace tandem
