#include "tandem/launch/logs/stream_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Number of bytes at the end of a stream that are kept.
constexpr size_t kTailBytes = 1 << 15;

// Returns the text of an error in a line of standard error; "" if it has none.
std::string error_in(const std::string& line) {
  static const std::regex form(
      "(?:  what\\(\\):  |tandem: (?:\\[rank [0-9]+\\] )?error: )(.*)");
  std::smatch found;
  return std::regex_match(line, found, form) ? found[1].str() : "";
}

}  // namespace

LogFile::LogFile(std::string path)
    : path_(std::move(path)),
      fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) {
    fail_on_file("write", path_);
  }
}

LogFile::~LogFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

void LogFile::add(const char* data, size_t size) {
  if (fd_ < 0) {
    return;
  }
  try {
    write_all(fd_, data, size, path_);
  } catch (const DataError& error) {
    log_warning(
        "[launch] the rest of a log file is missing: " + std::string(error.what()));
    close(std::exchange(fd_, -1));
  }
}

void FilteredFile::add(const std::string& lines) {
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size() - 1) + 1;
    const std::string line = lines.substr(at, end - at);
    const bool matches = std::any_of(texts.begin(), texts.end(), [&](const auto& text) {
      return line.find(text) != std::string::npos;
    });
    if (matches) {
      file.add(line.data(), line.size());
    }
    at = end;
  }
}

StreamSink::StreamSink(OutputQueue& console, StreamOptions options)
    : console_(&console), options_(std::move(options)), cutter_(options_.prefix) {}

void StreamSink::add(const char* data, size_t size) {
  if (options_.file) {
    options_.file->add(data, size);
  }
  tail_.append(data, size);
  if (tail_.size() > 2 * kTailBytes) {
    tail_.erase(0, tail_.size() - kTailBytes);
  }
  forward(cutter_.take(data, size));
}

void StreamSink::finish() {
  forward(cutter_.finish());
}

void StreamSink::forward(std::string lines) {
  if (options_.filtered) {
    options_.filtered->add(lines);
  }
  if (options_.on_console) {
    console_->add(std::move(lines));
  }
}

std::vector<std::string> StreamSink::last_hidden_lines(size_t most) const {
  auto lines = options_.on_console ? std::vector<std::string>() : split(tail_, '\n');
  if (lines.size() > most) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  }
  return lines;
}

std::string StreamSink::last_error() const {
  const auto lines = split(tail_, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (const auto error = error_in(*line); !error.empty()) {
      return printable(error);
    }
  }
  return "";
}

}  // namespace tandem
