#include "tandem/launch/status/run_status.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem {

namespace {

template <typename Condition>
const RankStatus* first_rank(
    const std::vector<RankStatus>& ranks, const Condition& condition) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), condition);
  return found == ranks.end() ? nullptr : &*found;
}

}  // namespace

const RankStatus* RunStatus::furthest() const {
  const auto most = std::max_element(
      ranks.begin(), ranks.end(),
      [](const auto& left, const auto& right) { return left.step < right.step; });
  return most == ranks.end() || most->step < 0 ? nullptr : &*most;
}

const RankStatus* RunStatus::with_values() const {
  return first_rank(
      ranks, [](const auto& rank) { return rank.samples_per_second > 0; });
}

const RankStatus* RunStatus::with_checkpoint() const {
  return first_rank(ranks, [](const auto& rank) { return rank.checkpoint_step >= 0; });
}

RunStatus status_now(int world_size, int restarts, std::vector<RankStatus> ranks) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {
      std::chrono::duration<double>(now).count(), restarts, world_size,
      std::move(ranks)};
}

}  // namespace tandem
