#pragma once

#include <string>
#include <vector>

#include "tandem/launch/status/rank_status.h"

namespace tandem {

/// Finds ranks for which other ranks wait too long.
class StallWatch {
 public:
  /// `seconds` is the shortest wait that is reported; 0: no wait is reported.
  explicit StallWatch(double seconds) : seconds_(seconds) {}

  /// Returns a line about the ranks for which other ranks wait too long, when such a
  /// wait is detected and when it has ended; otherwise "". `statuses` are the statuses
  /// of all ranks. Returns "" if a rank has not reported its status, because the other
  /// ranks may wait for this rank.
  std::string look(const std::vector<RankStatus>& statuses);

 private:
  double seconds_;
  // Numbers of the missing ranks in the last line; empty if all ranks waited.
  std::vector<int> missing_;
  // True if the last line is about a wait that has not ended.
  bool stalled_ = false;
};

}  // namespace tandem
