#pragma once

#include <string>
#include <vector>

namespace tandem {

/// The command that starts `command` (a program and its arguments) as `ranks` ranks on
/// this host under Open MPI's mpirun. Ranks may share cores, and none is bound to one:
/// the program decides how many threads each uses, from the number of ranks.
std::vector<std::string> mpirun_command(
    int ranks, const std::vector<std::string>& command);

/// A command as one types it into a shell.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace tandem
