#pragma once

#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/trace.h"

namespace tandem {

/// The traces of all ranks as one file's text, on rank 0's time: a rank is a process
/// of the display. Ranks of one host share a clock; those of several are as far apart
/// as their hosts' clocks. Collective; every rank gets the text.
std::string trace_of_all_ranks(const Trace& trace, Communicator& comm);

}  // namespace tandem
