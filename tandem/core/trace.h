#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// The spans of a rank's time that a trace viewer shows in two rows.
///
/// The row "compute" has the work and the waits of the thread that trains. Its spans
/// are properly nested, because only the scopes of TraceSpan, TraceLaps and
/// TraceSection add them. The row "communication" has operations, which may overlap.
///
/// Only one thread at a time may use a Trace. Operation::end() is thread-safe.
class Trace {
 public:
  struct Span {
    // Name in the trace viewer, for instance "bucket 1" or "backward conv2".
    std::string name;
    // Kind of work, for instance "backward", "wait" or "all_reduce".
    std::string category;
    // Start, in nanoseconds since the trace was constructed.
    int64_t start_ns = 0;
    int64_t duration_ns = 0;
    // Number of bytes of the tensors that are communicated; 0 if the span is no
    // communication.
    int64_t bytes = 0;
  };

  /// Private memory of the process, in bytes, at a time in nanoseconds since the trace
  /// was constructed: resident memory without files and shared memory.
  struct Memory {
    int64_t at_ns = 0;
    int64_t bytes = 0;
  };

  /// A communication operation in flight. It may outlive the Trace.
  class Operation {
   public:
    /// Records the end of the operation. Has no effect after the first call.
    void end();

   private:
    friend class Trace;

    Span span_;
    std::chrono::steady_clock::time_point origin_;
    // Time of the end, in nanoseconds since `origin_`; -1 while in flight.
    std::atomic<int64_t> end_ns_{-1};
  };

  /// Returns the time in nanoseconds since the trace was constructed.
  int64_t now_ns() const;

  /// Adds a span to the row "compute".
  void add(Span span) {
    spans_.push_back(std::move(span));
  }

  /// Starts an operation of the row "communication".
  std::shared_ptr<Operation> start_operation(
      std::string category, std::string name, int64_t bytes);

  /// Adds the memory at this moment. The scopes of TraceSpan call it at their end.
  void note_memory();

  /// Returns the memory in the order of time.
  const std::vector<Memory>& memory() const {
    return memory_;
  }

  /// Returns whether a TraceSection of this trace exists.
  bool in_section() const {
    return num_sections_ > 0;
  }

  /// Returns the spans of the row "compute" in the order of their start. A span comes
  /// before the spans that it contains.
  std::vector<Span> compute_spans() const;

  /// Returns the operations that have ended, in the order of their start.
  std::vector<Span> operations() const;

 private:
  friend class TraceSection;

  const std::chrono::steady_clock::time_point origin_ =
      std::chrono::steady_clock::now();
  std::vector<Span> spans_;
  std::vector<Memory> memory_;
  std::vector<std::shared_ptr<Operation>> operations_;
  int num_sections_ = 0;
};

/// Adds a span of the row "compute" that lasts as long as this object. If `trace` is
/// null, nothing is recorded.
class TraceSpan {
 public:
  /// The name of the span is `name` followed by `detail`.
  TraceSpan(
      Trace* trace, const char* category, std::string_view name,
      std::string_view detail = {}, int64_t bytes = 0)
      : trace_(trace) {
    if (trace_ != nullptr) {
      open(category, name, detail, bytes);
    }
  }
  ~TraceSpan() {
    if (trace_ != nullptr) {
      close();
    }
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void open(
      const char* category, std::string_view name, std::string_view detail,
      int64_t bytes);
  void close();

  Trace* trace_;
  Trace::Span span_;
};

/// A TraceSpan during which communicators also record their operations and waits
/// (Communicator::set_trace()).
class TraceSection {
 public:
  TraceSection(
      Trace* trace, const char* category, std::string_view name,
      std::string_view detail = {})
      : trace_(trace), span_(trace, category, name, detail) {
    if (trace_ != nullptr) {
      ++trace_->num_sections_;
    }
  }
  ~TraceSection() {
    if (trace_ != nullptr) {
      --trace_->num_sections_;
    }
  }
  TraceSection(const TraceSection&) = delete;
  TraceSection& operator=(const TraceSection&) = delete;

 private:
  Trace* trace_;
  TraceSpan span_;
};

/// Adds consecutive spans to the row "compute", for work whose parts report only their
/// end. If `trace` is null, nothing is recorded.
class TraceLaps {
 public:
  TraceLaps() = default;
  TraceLaps(Trace* trace, const char* category);

  /// Adds a span that lasts from the end of the previous span, or from the constructor,
  /// until now. Its name is `name` followed by `detail`.
  void end(std::string_view name, std::string_view detail = {});

 private:
  Trace* trace_ = nullptr;
  const char* category_ = "";
  int64_t start_ns_ = 0;
};

}  // namespace tandem
