#pragma once

#include <vector>

#include "tandem/launch/failure_file.h"
#include "tandem/launch/host_watch.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

/// Facts about a run that has ended, in addition to its ranks' endings.
struct Circumstances {
  // The signal that stopped the launcher, 0 for none.
  int stop_signal = 0;
  // The kernel killed a process for lack of memory.
  bool memory_ran_out = false;
  // The reason names the host of a rank.
  bool several_hosts = false;
  // Host 0 cannot be reached, so its ranks cannot either.
  bool host_0_lost = false;
};

/// Returns the likeliest cause (Cause) of the end of a host's ranks, with the exit code
/// and a line that names rank, process and signal. `reports` are in order of time.
HostEnding ending_of_host(
    const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports, const Circumstances& when);

}  // namespace tandem
