#pragma once

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/data/dataset.h"
#include "tandem/train/config.h"

namespace tandem {

/// Compares, before the first step, what all ranks must have alike: the settings
/// and the training data. Collective. Throws ConfigError that names the first
/// setting that differs, and where.
void check_same_run(const RunConfig& config, const Dataset& train, Communicator& comm);

/// Exchanges what each rank has to do in an epoch, so that none waits for a step
/// that another will not make. Collective. Throws ConfigError when the numbers of
/// steps differ, and with `uneven` = "error" when the numbers of samples do.
void check_same_steps(
    int64_t samples, int64_t steps, const std::string& uneven, Communicator& comm);

/// "lr 1.0 -> 0.5, seed 0 -> 1": what decides about the results and differs from an
/// earlier run's config.toml; "" when nothing does.
std::string changed_settings(const std::string& earlier, const RunConfig& config);

}  // namespace tandem
