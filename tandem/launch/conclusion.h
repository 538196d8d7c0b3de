#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tandem/launch/host_watch.h"
#include "tandem/launch/report.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

/// What a rank has left in the store, if anything.
using ReportOf = std::function<std::optional<FailureReport>(int rank)>;

/// What is known of a run that has ended, beside how its ranks did.
struct Circumstances {
  int stop_signal = 0;
  bool memory_ran_out = false;
  // Of several hosts' ranks each needs its host's name.
  bool several_hosts = false;
  // Host 0 cannot be reached.
  bool alone = false;
};

/// What ended a host's ranks: of how each ended, and of what it reported, the likeliest
/// cause (Cause), in a line that names rank, process and signal.
HostEnding ending_of_host(
    const std::vector<Supervisor::Ending>& endings, const ReportOf& report_of,
    const Circumstances& when);

}  // namespace tandem
