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

/// A rank process's place in its run. Keep it while the communicator is used:
/// rank 0 may hold the store.
struct JoinedRun {
  RankEnv env;
  // Only when no launcher runs the store.
  std::optional<TokenFile> token;
  // Only at rank 0, and only when no launcher runs the store.
  std::unique_ptr<StoreServer> server;
  // Null in a run of one rank without a launcher, and with the backend mpi.
  std::shared_ptr<StoreClient> store;
  std::unique_ptr<Communicator> comm;

  JoinedRun() = default;
  JoinedRun(JoinedRun&&) = default;
  /// Rank 0 keeps the store until the others have left, for 5 s at most.
  ~JoinedRun();
};

/// Meets the other ranks as the environment says (rank_env.h) and forms the group. A
/// process that no launcher started is a group of one. Ranks of the backend mpi meet by
/// mpirun alone, which is then needed even for one rank.
///
/// Ranks that no launcher of ours started need a token where they are on several hosts
/// (base/store/token.h); on one host all must be the same user's.
///
/// Under torchrun the agent's own store occupies MASTER_PORT; the ranks then meet at
/// one of the next ports.
///
/// Throws ConfigError for an impossible environment or a backend that does not fit it,
/// CommError when not all ranks come in time.
[[nodiscard]] JoinedRun join_run(const CommOptions& options = {});
[[nodiscard]] JoinedRun join_run(const RankEnv& env, const CommOptions& options);

/// The part of the options that says who may join.
TokenOptions token_options(const CommOptions& options);

}  // namespace tandem
