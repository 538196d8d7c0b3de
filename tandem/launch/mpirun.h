#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Placement of ranks on cores by mpirun.
enum class MpirunCores {
  // mpirun binds no rank to cores. The started program has to choose each rank's number
  // of threads.
  shared,
  // mpirun's default: if there are enough cores, ranks are bound to cores, and a
  // waiting rank polls.
  bound,
};

/// Returns whether the program mpirun is in a folder of PATH.
bool has_mpirun();

/// Returns the command that starts `command` (a program and its arguments) as `ranks`
/// ranks on this host under Open MPI's mpirun. There may be more ranks than cores.
std::vector<std::string> mpirun_command(
    int ranks, const std::vector<std::string>& command,
    MpirunCores cores = MpirunCores::shared);

/// Returns a command as one line for a shell, with quotes if necessary.
std::string shell_line(const std::vector<std::string>& command);

}  // namespace tandem
