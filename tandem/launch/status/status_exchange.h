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
  /// `board` has the ranks of this host and must outlive the object. `node` is the
  /// number of this host of `nnodes`. A wait of `stall_seconds` is logged; 0: none.
  StatusExchange(const StatusBoard& board, int node, int nnodes, double stall_seconds);

  /// Host 0 calls it often. Returns the statuses of all ranks, in order of rank, once a
  /// second, and nullopt otherwise. `server` is null in a run on one host.
  std::optional<std::vector<RankStatus>> collect(StoreServer* server);

  /// The other hosts call it often. Does nothing unless a second has passed.
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
