#pragma once

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/data_parts.h"
#include "tandem/data/dataset.h"
#include "tandem/train/trainer.h"

namespace tandem {

/// Makes the steps, evaluations and checkpoints of a run whose settings and data
/// train() has checked. `config` has no automatic precision and no automatic
/// normalization. `data_parts` describes `data`. Collective; throws as train() does.
Summary run_training(
    RunConfig config, const DatasetSplits& data, const DataParts& data_parts,
    Communicator& comm, CustomParts own);

}  // namespace tandem
