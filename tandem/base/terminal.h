#pragma once

#include <string>

namespace tandem {

/// Returns whether a descriptor is a terminal on which a line can be drawn again
/// ("\r\033[K"). Returns false if TERM is "dumb". Also returns false under mpirun,
/// which gives its ranks terminals even if its own output is a file.
bool is_terminal(int fd);

/// Kinds of emphasized text.
enum class Emphasis { error, warning, result };

/// Returns the text in red, yellow or bold if is_terminal(fd) and NO_COLOR is empty or
/// not set, otherwise the unchanged text.
std::string emphasised(int fd, Emphasis emphasis, const std::string& text);

}  // namespace tandem
