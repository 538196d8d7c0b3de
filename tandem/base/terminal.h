#pragma once

#include <string>

namespace tandem {

/// Returns whether a descriptor is a terminal that can draw a line again: one that
/// understands "\r\033[K". Not with TERM=dumb, nor under mpirun, which gives its ranks
/// terminals whatever its own output is.
bool is_terminal(int fd);

/// The meaning of an emphasis.
enum class Emphasis { error, warning, result };

/// The text in red, yellow or bold if the descriptor is such a terminal and NO_COLOR is
/// empty or not set; else as it is.
std::string emphasised(int fd, Emphasis emphasis, const std::string& text);

}  // namespace tandem
