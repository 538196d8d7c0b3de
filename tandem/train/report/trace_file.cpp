#include "tandem/train/report/trace_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

constexpr int kComputeRow = 0;
constexpr int kFirstCommunicationRow = 1;

struct Event {
  Trace::Span span;
  int row = kComputeRow;
};

// Assigns operations, which are in the order of their start, to rows in which they do
// not overlap.
std::vector<Event> in_rows(const std::vector<Trace::Span>& operations) {
  std::vector<Event> events;
  // Time at which the last operation of each row ends.
  std::vector<int64_t> ends;
  for (const auto& operation : operations) {
    const auto free = std::find_if(ends.begin(), ends.end(), [&](int64_t end_ns) {
      return end_ns <= operation.start_ns;
    });
    const auto row = free - ends.begin();
    if (free == ends.end()) {
      ends.push_back(0);
    }
    ends[static_cast<size_t>(row)] = operation.start_ns + operation.duration_ns;
    events.push_back({operation, kFirstCommunicationRow + static_cast<int>(row)});
  }
  return events;
}

std::vector<Event> events_of(const Trace& trace) {
  std::vector<Event> events;
  for (auto& span : trace.compute_spans()) {
    events.push_back({std::move(span), kComputeRow});
  }
  const auto operations = in_rows(trace.operations());
  events.insert(events.end(), operations.begin(), operations.end());
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.span.start_ns < b.span.start_ns;
  });
  return events;
}

double us_of(int64_t ns) {
  return static_cast<double>(ns) / 1000;
}

ordered_json event_json(const Event& event, const TraceOwner& owner) {
  ordered_json json = {
      {"ph", "X"},
      {"cat", event.span.category},
      {"name", event.span.name},
      {"pid", owner.rank},
      {"tid", event.row},
      {"ts", us_of(event.span.start_ns + owner.offset_ns)},
      {"dur", us_of(event.span.duration_ns)},
      {"args", ordered_json::object()}};
  if (event.span.bytes > 0) {
    json["args"]["bytes"] = event.span.bytes;
  }
  return json;
}

ordered_json memory_json(const Trace::Memory& memory, const TraceOwner& owner) {
  return {
      {"ph", "C"},
      {"name", "private memory"},
      {"pid", owner.rank},
      {"ts", us_of(memory.at_ns + owner.offset_ns)},
      {"args", {{"MiB", static_cast<double>(memory.bytes) / (1 << 20)}}}};
}

// Returns an event that sets a property of the rank (row 0) or of a row in the viewer.
template <typename Value>
ordered_json metadata(
    const char* property, const char* key, const Value& value, int row,
    const TraceOwner& owner) {
  return {
      {"ph", "M"},
      {"name", property},
      {"pid", owner.rank},
      {"tid", row},
      {"args", {{key, value}}}};
}

std::string name_of_row(int row) {
  if (row == kComputeRow) {
    return "compute";
  }
  return row == kFirstCommunicationRow ? "communication"
                                       : fmt::format("communication {}", row);
}

// Returns the time at which the trace began on the clock of the host, in nanoseconds.
int64_t origin_ns(const Trace& trace) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() -
         trace.now_ns();
}

// Returns whether a name is that of a trace of write_trace_files().
bool is_trace(const std::string& name) {
  const std::string start = "rank-";
  const std::string end = ".json";
  return name.rfind(start, 0) == 0 && ends_with(name, end) &&
         parse_number<uint32_t>(
             name.substr(start.size(), name.size() - start.size() - end.size()));
}

// Removes the files of an earlier run, which may have had more ranks.
void prepare_directory(const std::string& directory) {
  make_directories(directory);
  for (const auto& name : list_directory(directory)) {
    if (is_trace(name)) {
      remove_all(directory + "/" + name);
    }
  }
}

}  // namespace

std::string trace_text(const Trace& trace, const TraceOwner& owner) {
  const auto events = events_of(trace);
  int last_row = kFirstCommunicationRow;
  for (const auto& event : events) {
    last_row = std::max(last_row, event.row);
  }
  std::vector<ordered_json> lines = {
      metadata("process_name", "name", fmt::format("rank {}", owner.rank), 0, owner),
      metadata("process_sort_index", "sort_index", owner.rank, 0, owner)};
  for (int row = kComputeRow; row <= last_row; ++row) {
    lines.push_back(metadata("thread_name", "name", name_of_row(row), row, owner));
    lines.push_back(metadata("thread_sort_index", "sort_index", row, row, owner));
  }
  for (const auto& event : events) {
    lines.push_back(event_json(event, owner));
  }
  for (const auto& memory : trace.memory()) {
    lines.push_back(memory_json(memory, owner));
  }
  // HTA finds the rank only if a space follows the colon.
  std::string text = fmt::format(
      R"({{"schemaVersion": 1,
"distributedInfo": {{"backend": "{}", "rank": {}, "world_size": {}}},
"displayTimeUnit": "ms",
"traceEvents": [)",
      owner.backend, owner.rank, owner.world_size);
  const char* separator = "\n";
  for (const auto& line : lines) {
    text +=
        separator + line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    separator = ",\n";
  }
  return text + "\n]}\n";
}

void write_trace_files(
    const Trace& trace, const std::string& directory, Communicator& comm) {
  const int64_t own = origin_ns(trace);
  const int64_t first = exchange_numbers({own}, "trace", comm)[0][0];
  const std::string mine =
      trace_text(trace, {comm.rank(), comm.size(), comm.backend(), own - first});
  const auto texts = gather_texts(mine, "trace", comm);
  if (comm.rank() == 0) {
    prepare_directory(directory);
  }
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    replace_file(fmt::format("{}/rank-{}.json", directory, rank), texts[rank]);
  }
}

}  // namespace tandem
