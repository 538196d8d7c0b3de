#pragma once

#include <string>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/options/exec_options.h"

namespace tandem {

/// Returns the threads and instruction sets of all ranks on rank 0, and empty texts on
/// other ranks. Collective.
[[nodiscard]] Machine machine_of(Communicator& comm);

/// Returns the properties of `now` that change the bits of a run, such as "1 thread
/// instead of 2". The number of threads counts if the run's executor depends on it.
/// Returns "" if there are none, or if `earlier` is unknown.
[[nodiscard]] std::string machine_changes(
    const Machine& earlier, const Machine& now, bool depends_on_threads);

}  // namespace tandem
