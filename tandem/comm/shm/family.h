#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/shm/region.h"
#include "tandem/comm/shm/segments.h"

namespace tandem {

/// Something that can be moved on without waiting for anyone.
class ShmProgress {
 public:
  virtual ~ShmProgress() = default;
  /// Whether anything moved.
  virtual bool progress() = 0;
};

/// A rank among all ranks that met. Groups that split off share it: the region in which
/// the rank sleeps and dies, and its buffers.
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

  /// While a rank waits in one group it moves what it has in all of them.
  void add(ShmProgress& group);
  void remove(ShmProgress& group);
  bool progress();

  /// Rings those of `ranks` (of the family) that sleep, after something was written for
  /// them, and notes this rank's core.
  void ring(const std::vector<int>& ranks) const;

  /// Makes progress until `ended`: looks on, gives way, then sleeps (see ShmWait).
  /// After every sleep, which takes 20 ms if nobody rings, it calls `awake`.
  void wait(const std::function<bool()>& ended, const std::function<void()>& awake);

 private:
  std::shared_ptr<ShmRegion> region_;
  int rank_;
  int size_;
  std::shared_ptr<ShmSegments> segments_;
  std::vector<ShmProgress*> groups_;
};

}  // namespace tandem
