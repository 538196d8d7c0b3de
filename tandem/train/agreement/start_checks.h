#pragma once

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/data_parts.h"

namespace tandem {

/// Throws ConfigError if data, or settings that do not belong to a single host, differ
/// between ranks. The error names the first difference. Call this function before the
/// first step. Collective. Does not compare mean and std, because a resumed run has
/// numbers in place of their words on the hosts that have its config.toml.
void check_same_run(const RunConfig& config, const DataParts& data, Communicator& comm);

/// Throws ConfigError if the numbers of mean and std differ between ranks. `settled` is
/// the result of settle_normalization(). Collective.
void check_same_normalization(const DataOptions& settled, Communicator& comm);

/// Throws ConfigError if the ranks make different numbers of steps in an epoch. With
/// different numbers, a rank would wait for a step that another rank does not make. If
/// `uneven` is Uneven::error, also throws if the ranks have different numbers of
/// samples. `samples` and `steps` are this rank's numbers per epoch. Collective.
void check_same_steps(
    int64_t samples, int64_t steps, Uneven uneven, Communicator& comm);

}  // namespace tandem
