#pragma once

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/trace.h"

namespace tandem {

/// The rank to which a trace belongs.
struct TraceOwner {
  int rank = 0;
  int world_size = 1;
  std::string backend;
  // Time from the start of rank 0's trace to the start of this trace, in nanoseconds.
  int64_t offset_ns = 0;
};

/// Returns a trace in Chrome's trace event format (the JSON object format), which
/// Perfetto, chrome://tracing and Holistic Trace Analysis (HTA) read.
///
/// The rank is a process with one row for computation and at least one row for
/// communication. An operation that starts before the operations of all rows have ended
/// gets another row, so the spans of a row are properly nested. Events are in the order
/// of their start.
std::string trace_text(const Trace& trace, const TraceOwner& owner);

/// Replaces the files rank-0.json, rank-1.json, ... in `directory` by one file per rank
/// of `comm`. Times count from the start of rank 0's trace. Clocks of different hosts
/// are not synchronized, so the times of other hosts may be shifted. Collective; rank 0
/// writes all files. Throws DataError if a file cannot be written.
void write_trace_files(
    const Trace& trace, const std::string& directory, Communicator& comm);

}  // namespace tandem
