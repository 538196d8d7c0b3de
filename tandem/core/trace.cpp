#include "tandem/core/trace.h"

#include <fmt/core.h>

namespace tandem {

namespace {

// Returns a JSON string. Names may contain characters that need escapes.
std::string json_text(const std::string& text) {
  std::string json = "\"";
  for (const char letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<int>(letter));
      continue;
    }
    if (letter == '"' || letter == '\\') {
      json += '\\';
    }
    json += letter;
  }
  return json + '"';
}

}  // namespace

int64_t Trace::now_us() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now() - start_)
      .count();
}

void Trace::add(Event event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(std::move(event));
}

void Trace::mark(const std::string& category, const std::string& name, int64_t bytes) {
  add({name, category, now_us(), 0, bytes});
}

std::vector<Trace::Event> Trace::events() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return events_;
}

std::string Trace::to_json(int rank) const {
  std::string text = "[";
  for (const auto& event : events()) {
    text += fmt::format(
        R"({}{{"name":{},"cat":{},"ph":"{}","ts":{},"dur":{},"pid":{},"tid":{},)"
        R"("args":{{"bytes":{}}}}})",
        text.size() > 1 ? ",\n" : "", json_text(event.name), json_text(event.category),
        event.duration_us > 0 ? "X" : "i", event.at_us, event.duration_us, rank,
        json_text(event.category), event.bytes);
  }
  return text + "]\n";
}

}  // namespace tandem
