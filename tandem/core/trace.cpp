#include "tandem/core/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tandem/base/descriptor.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

int64_t ns_since(Clock::time_point origin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin)
      .count();
}

std::string joined(std::string_view name, std::string_view detail) {
  std::string text(name);
  return text += detail;
}

}  // namespace

void Trace::Operation::end() {
  int64_t in_flight = -1;
  end_ns_.compare_exchange_strong(in_flight, ns_since(origin_));
}

int64_t Trace::now_ns() const {
  return ns_since(origin_);
}

std::shared_ptr<Trace::Operation> Trace::start_operation(
    std::string category, std::string name, int64_t bytes) {
  auto operation = std::make_shared<Operation>();
  operation->span_ = {std::move(name), std::move(category), now_ns(), 0, bytes};
  operation->origin_ = origin_;
  operations_.push_back(operation);
  return operation;
}

void Trace::note_memory() {
  const Descriptor file(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  long resident = 0;
  long shared = 0;
  if (file && read(file.fd(), text, sizeof(text) - 1) > 0 &&
      std::sscanf(text, "%*d %ld %ld", &resident, &shared) == 2) {
    memory_.push_back({now_ns(), (resident - shared) * sysconf(_SC_PAGESIZE)});
  }
}

std::vector<Trace::Span> Trace::compute_spans() const {
  auto spans = spans_;
  // An inner span is added before the span that contains it.
  std::reverse(spans.begin(), spans.end());
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns
                                    : a.duration_ns > b.duration_ns;
  });
  return spans;
}

std::vector<Trace::Span> Trace::operations() const {
  std::vector<Span> ended;
  for (const auto& operation : operations_) {
    const int64_t end_ns = operation->end_ns_;
    if (end_ns >= 0) {
      ended.push_back(operation->span_);
      ended.back().duration_ns = end_ns - ended.back().start_ns;
    }
  }
  return ended;
}

void TraceSpan::open(
    const char* category, std::string_view name, std::string_view detail,
    int64_t bytes) {
  span_ = {joined(name, detail), category, trace_->now_ns(), 0, bytes};
}

void TraceSpan::close() {
  span_.duration_ns = trace_->now_ns() - span_.start_ns;
  trace_->add(std::move(span_));
  trace_->note_memory();
}

TraceLaps::TraceLaps(Trace* trace, const char* category)
    : trace_(trace),
      category_(category),
      start_ns_(trace != nullptr ? trace->now_ns() : 0) {}

void TraceLaps::end(std::string_view name, std::string_view detail) {
  if (trace_ == nullptr) {
    return;
  }
  const int64_t now = trace_->now_ns();
  trace_->add({joined(name, detail), category_, start_ns_, now - start_ns_, 0});
  start_ns_ = now;
}

}  // namespace tandem
