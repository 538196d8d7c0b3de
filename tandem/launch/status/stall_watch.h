#pragma once

#include <string>
#include <vector>

#include "tandem/launch/status/rank_status.h"

namespace tandem {

/// Finds ranks for which other ranks wait too long.
class StallWatch {
 public:
  /// `seconds`: shortest wait that is reported; 0: none is reported.
  explicit StallWatch(double seconds) : seconds_(seconds) {}

  /// Returns a line about the ranks of a run if other ranks have begun to wait for them
  /// too long, or if such a wait has ended; otherwise "". `statuses` are those of all
  /// ranks. Returns "" if a rank has not reported its status, because it may then be
  /// the rank that is missing.
  std::string look(const std::vector<RankStatus>& statuses);

 private:
  double seconds_;
  // Numbers of the missing ranks in the last line; empty if all ranks waited.
  std::vector<int> missing_;
  // True if the last line is about a wait that has not ended.
  bool stalled_ = false;
};

}  // namespace tandem
