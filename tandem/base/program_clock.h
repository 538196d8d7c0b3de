#pragma once

#include <string>
#include <utility>

namespace tandem {

/// Returns the seconds since the program began: since the start of tandem's launcher if
/// it started this rank, otherwise since the start of this process.
double program_seconds();

/// Returns the environment variable by which a launcher passes its start time to its
/// ranks.
std::pair<std::string, std::string> program_start_variable();

}  // namespace tandem
