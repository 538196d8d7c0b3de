#pragma once

#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// Ranks of a host that load their program once. Loading LibTorch takes 0.4 s of a CPU,
/// nearly all of it relocation, and 64 ranks on two cores would wait half a minute for
/// it. So the program is started once, as a fork server: it is loaded, and before
/// main() does anything it forks into each rank. What loading wrote into memory is
/// shared among them until one of them changes it.
///
/// The server then ends, and the ranks become children of this process, which has to
/// be a subreaper (PR_SET_CHILD_SUBREAPER). They have process groups of their own and
/// die with it, as every Process. /proc/PID/environ of a rank is the server's, but
/// its name (ps -o comm) is "tandem-rank-3".
///
/// Entries differ in their variables' values and in pipe_output only; the command is
/// the first's. Call it from the main thread, with the signals that stop a run blocked.
///
/// Throws ConfigError when the program cannot be executed; Error when it ends before
/// the ranks are there, a process cannot be made, or a signal that stops a run is
/// pending. No process stays then.
std::vector<Process> fork_ranks(const std::vector<ProcessOptions>& ranks);

/// For main() of such a program, as its first call: returns at once where it was
/// started in any other way, and else once in each rank.
void serve_as_fork_server();

}  // namespace tandem
