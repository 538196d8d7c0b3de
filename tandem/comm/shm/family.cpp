#include "tandem/comm/shm/family.h"

#include <algorithm>

#include "tandem/comm/shm/wait.h"

namespace tandem {

ShmFamily::ShmFamily(std::shared_ptr<ShmRegion> region, int rank, int size)
    : region_(std::move(region)),
      rank_(rank),
      size_(size),
      segments_(std::make_shared<ShmSegments>(region_, rank, size)) {}

void ShmFamily::add(ShmProgress& group) {
  groups_.push_back(&group);
}

void ShmFamily::remove(ShmProgress& group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), &group), groups_.end());
}

bool ShmFamily::progress() {
  bool moved = false;
  for (size_t i = 0; i < groups_.size(); ++i) {
    moved = groups_[i]->progress() || moved;
  }
  return moved;
}

void ShmFamily::ring(const std::vector<int>& ranks) const {
  note_core(*region_, rank_);
  ring_sleepers(*region_, rank_, ranks);
}

void ShmFamily::wait(
    const std::function<bool()>& ended, const std::function<void()>& awake) {
  constexpr std::chrono::milliseconds kNap{20};
  ShmWait wait(*region_, rank_, size_);
  while (!ended()) {
    if (progress()) {
      wait.reset();
    } else if (wait.pause()) {
      ShmSleeper sleeper(region_->block(rank_));
      if (!progress()) {
        sleeper.sleep(kNap);
        awake();
      }
    }
  }
}

}  // namespace tandem
