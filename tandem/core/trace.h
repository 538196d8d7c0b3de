#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tandem {

/// A list of events with times, in Chrome's trace event format for chrome://tracing or
/// Perfetto. Thread-safe.
class Trace {
 public:
  struct Event {
    // Name in the trace viewer, for instance "bucket 1" or "backward conv2".
    std::string name;
    // Row in the trace viewer, for instance "comm" or "compute".
    std::string category;
    // Start, in microseconds since the trace was constructed.
    int64_t at_us = 0;
    // Duration in microseconds; 0 for an instant.
    int64_t duration_us = 0;
    int64_t bytes = 0;
  };

  /// Returns the time in microseconds since the trace was constructed.
  int64_t now_us() const;

  /// Adds an event.
  void add(Event event);
  /// Adds an instant event at the current time.
  void mark(const std::string& category, const std::string& name, int64_t bytes = 0);

  /// Returns all events, in the order in which they were added.
  std::vector<Event> events() const;

  /// Returns the events as JSON text, with `rank` as the process id.
  std::string to_json(int rank) const;

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace tandem
