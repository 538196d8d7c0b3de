#include "tandem/parallel/strategies/parameter_server.h"

#include "tandem/base/error.h"
#include "tandem/comm/rpc/rpc.h"
#include "tandem/parallel/strategies/parameter_server_rank.h"
#include "tandem/parallel/strategies/strategies.h"

namespace tandem {

namespace {

void check_options(const StrategyOptions& options, const Communicator& comm) {
  if (comm.size() < 2) {
    throw ConfigError(
        "[parallel] strategy parameter_server needs a server and a worker, but there "
        "is 1 rank; use --nproc 2 at least");
  }
  if (!has_rpc(comm)) {
    throw ConfigError(
        "[parallel] strategy parameter_server needs ranks that can call each other, "
        "which --backend " +
        comm.backend() + " does not offer; use --backend gloo or --ranks thread");
  }
  if (options.buffers != BufferSync::broadcast &&
      options.buffers != BufferSync::average) {
    throw ConfigError(
        "[parallel] the server of strategy parameter_server gets its buffers from the "
        "workers; use --buffers broadcast (the first worker's) or average");
  }
}

}  // namespace

bool updates_elsewhere(const StrategyOptions& options, const Communicator& comm) {
  return has_trait(options.kind, kHasServer) && comm.rank() != kServer;
}

std::unique_ptr<Strategy> make_parameter_server(
    const StrategyOptions& options, const StrategyParts& parts) {
  check_options(options, parts.comm);
  if (updates_elsewhere(options, parts.comm)) {
    return make_worker_rank(options, parts);
  }
  return make_server_rank(options, parts);
}

}  // namespace tandem
