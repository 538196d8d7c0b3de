#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/store/store.h"
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

/// Collects the statuses of a run's ranks at host 0, and logs on every host which ranks
/// stall the run. The launchers of the hosts exchange statuses through the store of
/// host 0, once a second.
class StatusExchange {
 public:
  /// `board` contains the statuses of this host's ranks and must outlive the object.
  /// `node` is the number of this host of `nnodes`. Waits of at least `stall_seconds`
  /// are logged; 0: no waits are logged.
  StatusExchange(const StatusBoard& board, int node, int nnodes, double stall_seconds);

  /// Returns the statuses of all ranks, in order of rank, if a second has passed since
  /// the last result; otherwise nullopt. Host 0 calls this function often. `server` is
  /// the store's server; it may be null in a run on one host.
  std::optional<std::vector<RankStatus>> collect(StoreServer* server);

  /// Sends the statuses of this host's ranks to host 0, at most once a second. The
  /// other hosts call this function often.
  void tell(StoreClient& client);

 private:
  bool is_due();

  const StatusBoard& board_;
  int node_;
  int nnodes_;
  StallWatch stalls_;
  // The last logged line of host 0.
  std::string line_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace tandem
