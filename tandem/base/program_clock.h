#pragma once

#include <string>
#include <utility>

namespace tandem {

/// Returns the seconds since the start of tandem's launcher if the launcher started
/// this rank, otherwise the seconds since the start of this process.
double program_seconds();

/// Returns a text that differs between programs: the start of tandem's launcher if the
/// launcher started this rank, otherwise the start of this process. Ranks that a
/// launcher starts again have the same program.
std::string program_start();

/// Returns the name and value of the environment variable in which a launcher passes
/// its start time to its ranks.
std::pair<std::string, std::string> program_start_variable();

}  // namespace tandem
