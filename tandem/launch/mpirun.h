#pragma once

#include <string>
#include <vector>

namespace tandem {

/// On which cores mpirun's ranks run.
enum class MpirunCores {
  // Any rank on any core: the program decides how many threads each uses, from the
  // number of ranks.
  shared,
  // As mpirun does by default: each rank keeps to one core where there are enough, and
  // a rank that waits never gives way.
  bound,
};

/// Returns whether PATH has an mpirun.
bool has_mpirun();

/// The command that starts `command` (a program and its arguments) as `ranks` ranks on
/// this host under Open MPI's mpirun. There may be more ranks than cores.
std::vector<std::string> mpirun_command(
    int ranks, const std::vector<std::string>& command,
    MpirunCores cores = MpirunCores::shared);

/// A command as one types it into a shell.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace tandem
