#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tandem {

/// A record of what happened when, in Chrome's trace event format (open it at
/// chrome://tracing or in Perfetto). Thread-safe.
class Trace {
 public:
  struct Event {
    // "bucket 1", "backward conv2": what happened.
    std::string name;
    // "comm", "compute": a row of the display.
    std::string category;
    // Microseconds since the trace was made.
    int64_t at_us = 0;
    // 0 for an instant.
    int64_t duration_us = 0;
    int64_t bytes = 0;
  };

  /// Microseconds since the trace was made.
  int64_t now_us() const;

  void add(Event event);
  /// An instant, now.
  void mark(const std::string& category, const std::string& name, int64_t bytes = 0);

  std::vector<Event> events() const;

  /// The JSON text; `rank` becomes the process id.
  std::string to_json(int rank) const;

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace tandem
