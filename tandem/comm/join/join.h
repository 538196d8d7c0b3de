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

/// Membership of a rank process in a run: its environment, store and communicator. Keep
/// it until no rank uses the communicator, because rank 0 may run the store.
struct JoinedRun {
  RankEnv env;
  // Token file; only set if no launcher runs the store.
  std::optional<TokenFile> token;
  // Server of the store; only set on rank 0, if no launcher runs the store.
  std::unique_ptr<StoreServer> server;
  // Client of the store; null if the run has no store, as with the backend mpi.
  std::shared_ptr<StoreClient> store;
  // Group of all ranks of the run.
  std::unique_ptr<Communicator> comm;

  JoinedRun() = default;
  JoinedRun(JoinedRun&&) = default;
  /// Leaves the current run as the destructor does, and takes over the other object's
  /// run.
  JoinedRun& operator=(JoinedRun&& other) noexcept;
  /// Leaves the run. If this rank runs the store, it first waits a limited time until
  /// the other ranks have left, because they may still use the store.
  ~JoinedRun();

 private:
  void leave();
};

/// Connects this process to the other ranks of its run and forms their group. The
/// environment variables (rank_env.h) describe the run. A process without a launcher
/// forms a group of one rank. With the backend mpi, mpirun connects the ranks, and even
/// one rank needs mpirun.
///
/// Ranks on several hosts need a token (base/store/token.h), which `tandem` and spawn()
/// pass to their ranks. On one host all ranks must belong to the same user.
///
/// Under torchrun, the store of torchrun's agent occupies MASTER_PORT. The ranks then
/// use one of the next ports.
///
/// Throws ConfigError for invalid environment variables or a backend that does not
/// match them, CommError if a rank does not join in time.
[[nodiscard]] JoinedRun join_run(const CommOptions& options = {});

/// Joins the run that `env` describes, without reading the variables of rank_env.h.
/// Otherwise like the overload without `env`.
[[nodiscard]] JoinedRun join_run(const RankEnv& env, const CommOptions& options);

/// Returns the token settings of `options`.
TokenOptions token_options(const CommOptions& options);

}  // namespace tandem
