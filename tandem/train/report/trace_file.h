#pragma once

#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/trace.h"

namespace tandem {

/// Returns the traces of all ranks as the text of one trace file, which shows each rank
/// as a process. Times count from the start of rank 0's trace. The clocks of several
/// hosts are not synchronized, so their times may be shifted. Collective; every rank
/// gets the text.
std::string trace_of_all_ranks(const Trace& trace, Communicator& comm);

}  // namespace tandem
