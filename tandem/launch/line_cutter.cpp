#include "tandem/launch/line_cutter.h"

#include <algorithm>

namespace tandem {

namespace {

constexpr size_t kLongestLine = 1 << 20;
constexpr const char* kEnds = "\r\n";

}  // namespace

std::string LineCutter::take(const char* data, size_t size) {
  rest_.append(data, size);
  const size_t last = rest_.find_last_of(kEnds);
  if (last != std::string::npos) {
    return cut(last + 1);
  }
  return rest_.size() > kLongestLine ? cut(rest_.size()) : "";
}

std::string LineCutter::finish() {
  std::string text = cut(rest_.size());
  if (in_line_) {
    in_line_ = false;
    text += '\n';
  }
  return text;
}

std::string LineCutter::cut(size_t end) {
  std::string text;
  for (size_t at = 0; at < end;) {
    // The second half of "\r\n" is no line of its own.
    if (!in_line_ && !(after_return_ && rest_[at] == '\n')) {
      text += prefix_;
    }
    const size_t next = std::min(rest_.find_first_of(kEnds, at), end - 1) + 1;
    text.append(rest_, at, next - at);
    after_return_ = rest_[next - 1] == '\r';
    in_line_ = !after_return_ && rest_[next - 1] != '\n';
    at = next;
  }
  rest_.erase(0, end);
  return text;
}

}  // namespace tandem
