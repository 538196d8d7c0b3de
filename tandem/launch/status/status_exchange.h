#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/store/store.h"
#include "tandem/launch/status/rank_status.h"
#include "tandem/launch/status/stall_watch.h"

namespace tandem {

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
