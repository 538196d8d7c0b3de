#pragma once

#include <memory>

#include "tandem/base/deadline.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/options/comm_options.h"

namespace tandem {

/// Arguments of make_world().
struct BackendParts {
  const RankEnv& env;
  const CommOptions& options;
  // Deadline of forming the group.
  Deadline forming;
  // Store of the run; null for `thread`, and for backends that have their own launcher
  // (BackendRow::has_launcher).
  std::shared_ptr<StoreClient> store;

  /// Returns whether all ranks are on this host, according to the launcher.
  bool ranks_share_host() const {
    return env.local_world_size == env.world_size;
  }
};

/// Returns the group of all ranks of a run, over the backend `kind`. Collective. The
/// source file of the backend defines make_world(KindTag<kind>, const BackendParts&),
/// which this function calls.
///
/// Throws ConfigError if the backend cannot connect the ranks of this run, CommError if
/// a rank does not arrive before the deadline.
template <BackendKind kind>
std::unique_ptr<Communicator> make_world(const BackendParts& parts) {
  std::unique_ptr<Communicator> make_world(KindTag<kind>, const BackendParts&);
  return make_world({}, parts);
}

}  // namespace tandem
