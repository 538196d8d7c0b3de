#include "app/fetch/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tandem/base/standard_streams.h"
#include "tandem/base/terminal.h"

namespace tandem::app {

namespace {

constexpr int kBarWidth = 20;
constexpr auto kBetweenLines = std::chrono::milliseconds(100);
// To the line's beginning; and from there to its end.
constexpr const char* kBack = "\r";
constexpr const char* kWipe = "\r\033[K";

}  // namespace

void say(const std::string& line) {
  print_now(stdout, line + "\n");
}

std::string bytes_text(int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  return bytes < 1000        ? fmt::format("{} bytes", bytes)
         : bytes < 1'000'000 ? fmt::format("{:.1f} kB", number / 1e3)
                             : fmt::format("{:.1f} MB", number / 1e6);
}

std::string progress_line(
    const std::string& name, int64_t there, int64_t size, int64_t first,
    double seconds) {
  const double share =
      size > 0 ? static_cast<double>(there) / static_cast<double>(size) : 0;
  const auto filled = static_cast<int>(share * kBarWidth);
  const double speed =
      seconds > 0 ? static_cast<double>(std::max<int64_t>(0, there - first)) / seconds
                  : 0;
  return fmt::format(
      "{} [{}{}] {:3.0f} %  {} of {}  {:.1f} MB/s", name, std::string(filled, '#'),
      std::string(kBarWidth - filled, '.'), 100 * share, bytes_text(there),
      bytes_text(size), speed / 1e6);
}

ProgressBar::ProgressBar(std::string name, int64_t size, int64_t there)
    : name_(std::move(name)),
      size_(size),
      first_(there),
      visible_(is_terminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
  if (visible_) {
    print_now(stderr, kWipe);
  }
}

void ProgressBar::show(int64_t there) {
  const auto now = Clock::now();
  if (!visible_ || now - shown_ < kBetweenLines) {
    return;
  }
  shown_ = now;
  // The file began anew.
  first_ = std::min(first_, there);
  const std::chrono::duration<double> took = now - start_;
  print_now(
      stderr, kWipe + progress_line(name_, there, size_, first_, took.count()) + kBack);
}

}  // namespace tandem::app
