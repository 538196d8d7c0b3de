#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/failure_file.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

/// How likely it is that what ended a host's ranks ended the run, from 0: they ended
/// well. A rank that somebody killed is the most likely cause; then a rank's own error;
/// then a signal after which all ranks saved; then a rank that was stopped, or a host
/// that is lost; then an error that followed from another rank's end.
enum class Cause {
  none,
  stopped_by_us,
  consequence,
  lost,
  saved_and_stopped,
  own_error,
  killed
};

/// How the ranks of a host ended.
struct HostEnding {
  Cause cause = Cause::none;
  int code = 0;
  std::string reason;
};

/// As text for the store, and back.
std::string to_text(const HostEnding& ending);
std::optional<HostEnding> ending_from(const std::string& text);

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
