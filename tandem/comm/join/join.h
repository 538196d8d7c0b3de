#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/rank_env.h"
#include "tandem/base/store/store.h"
#include "tandem/base/store/token.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/options/comm_options.h"

namespace tandem {

/// Membership of a rank process in a run. It must outlive all use of the communicator,
/// because rank 0 may hold the store.
struct JoinedRun {
  RankEnv env;
  // Only if no launcher runs the store.
  std::optional<TokenFile> token;
  // Only on rank 0, and only if no launcher runs the store.
  std::unique_ptr<StoreServer> server;
  // Null in a run of one rank without a launcher, and with the backend mpi.
  std::shared_ptr<StoreClient> store;
  // All ranks of the run.
  std::unique_ptr<Communicator> comm;

  JoinedRun() = default;
  JoinedRun(JoinedRun&&) = default;
  /// Leaves the run. Rank 0 keeps the store until the other ranks have left, for at
  /// most 5 s.
  ~JoinedRun();
};

/// Meets the other ranks that the environment describes (rank_env.h) and forms their
/// group. A process without a launcher forms a group of one rank. Ranks of the backend
/// mpi meet through mpirun, which is then needed even for one rank.
///
/// Ranks that `tandem` or spawn() did not start need a token if they are on several
/// hosts (base/store/token.h). On one host all ranks must belong to the same user.
///
/// Under torchrun the agent's store occupies MASTER_PORT, so the ranks meet at one of
/// the next ports.
///
/// Throws ConfigError for an impossible environment or a backend that does not fit the
/// environment, CommError if a rank does not join in time.
[[nodiscard]] JoinedRun join_run(const CommOptions& options = {});

/// Joins the run that `env` describes. Otherwise as above.
[[nodiscard]] JoinedRun join_run(const RankEnv& env, const CommOptions& options);

/// Returns the options that protect a run from other processes of the network.
TokenOptions token_options(const CommOptions& options);

}  // namespace tandem
