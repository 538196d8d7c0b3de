#include "tandem/launch/logs/rank_output.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tandem/base/text.h"

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
    // The "\n" of "\r\n" does not begin a line.
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

void OutputQueue::add(std::string text) {
  if (!text.empty()) {
    bytes_ += text.size();
    texts_.push_back(std::move(text));
    make_room();
  }
}

// Drops the oldest texts. Keeps a text that is partly written, and the newest text.
void OutputQueue::make_room() {
  const size_t first = written_ > 0 ? 1 : 0;
  while (dropping_ && bytes_ > kMostBytes && texts_.size() > first + 1) {
    const auto oldest = texts_.begin() + static_cast<std::ptrdiff_t>(first);
    dropped_ += std::count(oldest->begin(), oldest->end(), '\n');
    bytes_ -= oldest->size();
    texts_.erase(oldest);
  }
}

std::string OutputQueue::note() const {
  return dropped_ == 0 || written_ > 0
             ? ""
             : "tandem: " + counted(dropped_, "line") +
                   " of output missing here: the run ended while nothing "
                   "read them\n";
}

bool OutputQueue::write() {
  bool any = false;
  while (!empty()) {
    // The note is added to the queue only after the reader has accepted a part of it.
    // Until then, more lines may be dropped, and their number would change.
    std::string missing = note();
    const auto& text = missing.empty() ? texts_.front() : missing;
    const ssize_t got =
        outlet_.write_now(text.data() + written_, text.size() - written_);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return any;
    }
    any = true;
    if (!missing.empty()) {
      bytes_ += missing.size();
      texts_.push_front(std::move(missing));
      dropped_ = 0;
    }
    written_ += static_cast<size_t>(std::max<ssize_t>(got, 0));
    if (got < 0 || written_ == texts_.front().size()) {
      bytes_ -= texts_.front().size();
      written_ = 0;
      texts_.pop_front();
    }
  }
  return any;
}

}  // namespace tandem
