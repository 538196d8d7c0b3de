#pragma once

#include <cstdint>
#include <string>
#include <utility>

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

/// The trace of a run: the first steps of this process, and all evaluations and
/// checkpoints.
class RunTrace {
 public:
  /// Makes `comm` record its operations as long as this object exists. write() writes
  /// to `directory`. If `directory` is "", nothing is recorded.
  RunTrace(Communicator& comm, std::string directory)
      : comm_(comm), directory_(std::move(directory)) {
    comm_.set_trace(get());
  }
  ~RunTrace() {
    comm_.set_trace(nullptr);
  }
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  /// Returns the trace; null if nothing is recorded.
  Trace* get() {
    return directory_.empty() ? nullptr : &trace_;
  }

  /// Returns the trace for a step; null after the first steps. `step` is the number of
  /// steps that this process made before.
  Trace* of_step(int64_t step) {
    return step < kTracedSteps ? get() : nullptr;
  }

  /// Writes one file per rank (write_trace_files()). Collective.
  void write() {
    if (!directory_.empty()) {
      write_trace_files(trace_, directory_, comm_);
    }
  }

 private:
  static constexpr int64_t kTracedSteps = 20;

  Communicator& comm_;
  std::string directory_;
  Trace trace_;
};

}  // namespace tandem
