#pragma once

#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/trace.h"

namespace tandem {

/// Returns the text of one trace file with the traces of all ranks, each shown as a
/// process. Times count from the start of rank 0's trace. Clocks of different hosts are
/// not synchronized, so the times of other hosts may be shifted. Collective; every rank
/// gets the text.
std::string trace_of_all_ranks(const Trace& trace, Communicator& comm);

}  // namespace tandem
