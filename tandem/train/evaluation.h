#pragma once

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/data/loader.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Evaluates a data set with every sample counted exactly once, whatever the
/// number of ranks: shards without padding, and sums that are reduced, not means.
///
/// Collective; all ranks get the same result. `limit_batches` > 0 ends early (for
/// --dry-run).
TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches = 0);

}  // namespace tandem
