#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// Starts the ranks of a host. Loads their program only once, and forks it into the
/// ranks.
///
/// Loading LibTorch takes 0.4 s of CPU time, mostly for relocation, so many ranks on
/// few cores would start slowly. Instead, the program is started once, as a fork
/// server, which loads its libraries and then forks into each rank at the beginning of
/// main(). The ranks share the memory that loading wrote, except for pages that a rank
/// changes.
///
/// The server then ends, and the ranks become children of this process, which has to be
/// a subreaper (PR_SET_CHILD_SUBREAPER). Each rank has its own process group, and the
/// kernel kills it when this process ends, as for every Process. /proc/PID/environ of a
/// rank shows the server's variables, but each rank has a different name (ps -o comm),
/// such as "tandem-rank-3".
///
/// All ranks run the command of ranks[0]. The elements of `ranks` may differ only in
/// the values of their variables and in pipe_output. Call the function from the main
/// thread, with the signals that stop a run blocked.
///
/// Calls `check` about ten times a second until all ranks exist, with the process that
/// loads the program. `check` can throw an error, which ends this process.
///
/// Throws ConfigError if the program cannot be executed. Throws Error if the program
/// ends before all ranks exist or if fork fails. No process is left after an error,
/// except a process that outlives SIGKILL.
std::vector<Process> fork_ranks(
    const std::vector<ProcessOptions>& ranks,
    const std::function<void(pid_t loader)>& check);

/// If fork_ranks() started this process, forks it into the ranks and returns once in
/// each rank. Otherwise, does nothing. Call it first in main().
void serve_as_fork_server();

}  // namespace tandem
