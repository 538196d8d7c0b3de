#include "app/fetch/progress.h"

#include <fmt/core.h>

#include <cstdio>

#include "tandem/base/output.h"

namespace tandem::app {

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
    const std::string& name, int64_t bytes, int64_t total, int64_t bytes_per_second) {
  constexpr int kBarWidth = 20;
  const double share = static_cast<double>(bytes) / static_cast<double>(total);
  const auto filled = static_cast<int>(share * kBarWidth);
  return fmt::format(
      "{} [{}{}] {:3.0f} %  {} of {}  {:.1f} MB/s", name, std::string(filled, '#'),
      std::string(kBarWidth - filled, '.'), 100 * share, bytes_text(bytes),
      bytes_text(total), static_cast<double>(bytes_per_second) / 1e6);
}

}  // namespace tandem::app
