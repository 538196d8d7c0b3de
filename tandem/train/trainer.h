#pragma once

#include <memory>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/model/model.h"

namespace tandem {

/// Trains as the config says, on this rank. Collective: every rank of `comm`
/// calls it with the same config and data. Rank 0 prints and writes.
///
/// Returns the summary, the same on every rank. Throws ConfigError, DataError or
/// CommError; a run that a signal stopped has saved a checkpoint (with --out)
/// and throws Error that says how to go on.
///
/// `model`: the program's own instead of the config's (see assemble()).
Summary train(
    const RunConfig& config, const DatasetSplits& data, Communicator& comm,
    std::unique_ptr<Model> model = nullptr);

}  // namespace tandem
