#pragma once

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/data_parts.h"

namespace tandem {

/// Compares, before the first step, what must be the same on all ranks: the settings
/// and the data. Collective. Throws ConfigError that names the first setting or part of
/// the data that differs, and where.
void check_same_run(const RunConfig& config, const DataParts& data, Communicator& comm);

/// Exchanges what each rank has to do in an epoch, so that none waits for a step
/// that another will not make. Collective. Throws ConfigError when the numbers of
/// steps differ, and with `uneven` = "error" when the numbers of samples do.
void check_same_steps(
    int64_t samples, int64_t steps, Uneven uneven, Communicator& comm);

}  // namespace tandem
