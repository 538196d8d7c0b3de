#pragma once

#include <cstdint>
#include <string>

namespace tandem::app {

/// Prints a line on standard output and flushes it.
void say(const std::string& line);

/// Returns a number of bytes as text, such as "9.9 MB" or "28.9 kB".
std::string bytes_text(int64_t bytes);

/// Returns the progress of a download as a line with a bar, percent, bytes and speed.
std::string progress_line(
    const std::string& name, int64_t bytes, int64_t total, int64_t bytes_per_second);

}  // namespace tandem::app
