#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/data/loader.h"
#include "tandem/data/sampler.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// The samples of a place on the replica axis. A rank that reads no data has those of
/// one that does, whose steps it counts.
SamplerOptions sampler_options(
    const RunConfig& config, const Dataset& train, const DataShard& shard);

/// The samples of an optimizer step that is not an epoch's last: of all ranks, and of
/// the rank at a place.
int64_t samples_per_step(const RunConfig& config, const DataShard& shard);
int64_t own_samples_per_step(const RunConfig& config, const DataShard& shard);

/// How a rank loads them for training.
LoaderOptions training_loader_options(const RunConfig& config, const Assembly& parts);

/// Scattered data is where it is: throws ConfigError when the strategy has a rank read
/// another's share.
void check_shares(
    const RunConfig& config, const Dataset& train, const DataShard& shard,
    const Communicator& comm);

}  // namespace tandem
