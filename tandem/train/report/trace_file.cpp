#include "tandem/train/report/trace_file.h"

#include <ATen/ops/full.h>

#include <chrono>

namespace tandem {

namespace {

// Returns the time at which the trace began on the clock of the host, in microseconds.
int64_t origin_us(const Trace& trace) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count() -
         trace.now_us();
}

// Returns the events in a JSON list, without the brackets.
std::string events_in(const std::string& list) {
  return list.substr(1, list.rfind(']') - 1);
}

}  // namespace

std::string trace_of_all_ranks(const Trace& trace, Communicator& comm) {
  auto origin = at::full({1}, origin_us(trace), at::kLong);
  const int64_t own = origin.item<int64_t>();
  comm.broadcast(origin, 0, "trace")->wait();
  const int64_t offset = own - origin.item<int64_t>();
  Trace shifted;
  for (auto event : trace.events()) {
    event.at_us += offset;
    shifted.add(std::move(event));
  }
  const std::string mine = events_in(shifted.to_json(comm.rank()));
  std::string all;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::string events = comm.broadcast_text(mine, rank, "trace");
    all += (all.empty() || events.empty() ? "" : ",\n") + events;
  }
  return "[" + all + "]\n";
}

}  // namespace tandem
