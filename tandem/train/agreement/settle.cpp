#include "tandem/train/agreement/settle.h"

#include "tandem/train/agreement/precision.h"

namespace tandem {

RunConfig settle(const RunConfig& config, Communicator& comm) {
  RunConfig settled = config;
  settled.exec.precision = settle_precision(config, comm);
  settled.exec.device = Device::cpu;
  settled.comm.backend =
      find_choice<BackendKind>(comm.backend()).value_or(config.comm.backend);
  if (has_trait(config.strategy.kind, kHasBuckets) &&
      config.strategy.optimizer_state == OptimizerState::automatic) {
    // Over shared memory handing out parameters costs less than updating them all.
    settled.strategy.optimizer_state =
        comm.shares_memory() ? OptimizerState::sharded : OptimizerState::replicated;
  }
  return settled;
}

}  // namespace tandem
