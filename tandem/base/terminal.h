#pragma once

#include <string>

namespace tandem {

/// Returns whether a descriptor is a terminal on which a line can be drawn again
/// ("\r\033[K"). Returns false if TERM is "dumb". Also returns false under mpirun,
/// which gives its ranks terminals even if its own output is a file.
bool is_terminal(int fd);

/// Kinds of emphasized text.
enum class Emphasis { error, warning, result };

/// Returns the text in red (error), yellow (warning) or bold (result). Returns the
/// unchanged text if is_terminal(fd) is false or NO_COLOR is not empty.
std::string emphasised(int fd, Emphasis emphasis, const std::string& text);

}  // namespace tandem
