#pragma once

#include <string>
#include <utility>

namespace tandem {

/// Seconds since the program began: since the start of our launcher if it started this
/// rank, else since the start of this process.
double program_seconds();

/// The variable through which a launcher passes its own start to its ranks.
std::pair<std::string, std::string> program_start_variable();

}  // namespace tandem
