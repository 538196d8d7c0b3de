#pragma once

#include <cstdint>
#include <string>

namespace tandem::app {

/// Prints a line on standard output and flushes it.
void say(const std::string& line);

/// "9.9 MB", "28.9 kB".
std::string bytes_text(int64_t bytes);

/// A bar, percent, bytes and speed.
std::string progress_line(
    const std::string& name, int64_t bytes, int64_t total, int64_t bytes_per_second);

}  // namespace tandem::app
