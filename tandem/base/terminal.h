#pragma once

#include <string>

namespace tandem {

/// Whether a descriptor is a terminal on which a line can be drawn again: one that
/// understands "\r\033[K". Not with TERM=dumb, nor under mpirun, which gives its ranks
/// terminals whatever its own output is.
bool is_terminal(int fd);

/// What a line's emphasis means.
enum class Emphasis { error, warning, result };

/// The text in red, yellow or bold if the descriptor is such a terminal and NO_COLOR is
/// empty or not set; else as it is.
std::string emphasised(int fd, Emphasis emphasis, const std::string& text);

}  // namespace tandem
