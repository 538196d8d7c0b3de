#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/status/rank_status.h"

namespace tandem {

/// Statuses of a run's ranks, which the launcher of host 0 has collected.
struct RunStatus {
  // Time at which the statuses were collected, in seconds since 1970.
  double collected_at = 0;
  // Number of restarts after failures. Changes of hosts do not count.
  int restarts = 0;
  int world_size = 0;
  // Statuses in order of rank. Ranks of a host that has not reported are missing; all
  // ranks are missing before a start. Ranks that are threads of one process have one
  // status, the status of the first rank of the process.
  std::vector<RankStatus> ranks;

  /// Returns the rank that has made the most steps; null before the first step.
  const RankStatus* furthest() const;
  /// Returns the first rank that has reported a loss; null if there is none.
  const RankStatus* with_values() const;
  /// Returns the first rank that has saved a checkpoint; null if there is none.
  const RankStatus* with_checkpoint() const;
};

/// Returns a status that is collected at the time of this call.
RunStatus status_now(int world_size, int restarts, std::vector<RankStatus> ranks);

/// Converts statuses of ranks to a JSON array and back. statuses_from_json() returns no
/// statuses if the text has another form, because any process of a run can write it.
std::string to_json(const std::vector<RankStatus>& statuses);
std::vector<RankStatus> statuses_from_json(const std::string& text);

/// Converts the status of a run to a JSON object and back. run_status_from_json()
/// returns nullopt if the text has another form.
std::string to_json(const RunStatus& status);
std::optional<RunStatus> run_status_from_json(const std::string& text);

}  // namespace tandem
