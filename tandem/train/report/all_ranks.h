#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/core/step_sums.h"

namespace tandem {

/// Returns the sum of `mine` over all ranks, in main memory. Collective.
inline StepSums of_all_ranks(
    const StepSums& mine, Communicator& comm, const char* label) {
  auto tensor = mine.tensor().cpu().clone();
  comm.all_reduce(tensor, ReduceOp::sum, label)->wait();
  return StepSums(tensor);
}

}  // namespace tandem
