#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/failure_file.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

/// Exit code of a program that was called with invalid arguments or settings.
constexpr int kExitMisuse = 2;

/// Causes for the end of a host's ranks. If several causes apply to a run, the largest
/// value is most likely the reason why the run ended.
enum class Cause {
  // All ranks exited with 0.
  none,
  // The launcher stopped the ranks.
  stopped_by_us,
  // An error that followed from the end of another rank.
  consequence,
  // The ranks saved a checkpoint and stopped without a signal from their launcher. The
  // signal may come from the launcher of a host that lost contact.
  saved,
  // A rank was suspended, or a host is lost.
  lost,
  // A signal to the launcher stopped the run, and the ranks saved a checkpoint.
  saved_and_stopped,
  // An error of the rank itself.
  own_error,
  // A signal that the launcher did not send killed a rank.
  killed
};

/// The end of a host's ranks: cause, exit code and reason.
struct HostEnding {
  Cause cause = Cause::none;
  // Exit code with which the launcher ends.
  int code = 0;
  // One line for the user; "" if the ranks exited with 0.
  std::string reason;
  // True if the launchers start the ranks again (launch/restarts.h).
  bool again = false;
  // True if a signal stopped only this host, and the run may continue without it.
  bool leaves = false;
  // True if this launcher lost contact with host 0. Other launchers do not receive it.
  bool lost_host_0 = false;
};

/// Converts a HostEnding to text, which launchers exchange through the store.
std::string to_text(const HostEnding& ending);

/// Parses the text of to_text(). Any process of the run can write the text, so unknown
/// exit codes and unprintable characters are replaced. Returns nullopt for other text.
std::optional<HostEnding> ending_from(const std::string& text);

/// Returns whether the message of an error is about data or files, which can differ
/// between hosts.
bool is_about_files(const std::string& message);

/// Returns the first report of a rank; null if there is none. The pointer points into
/// `reports`.
const FailureReport* report_of(int rank, const std::vector<FailureReport>& reports);

/// Facts about a run that has ended, in addition to the endings of its ranks.
struct Circumstances {
  // The signal that stopped the launcher, 0 for none.
  int stop_signal = 0;
  // True if the kernel killed a process because memory ran out.
  bool memory_ran_out = false;
  // True if the run has several hosts. The reason then names the rank's host.
  bool several_hosts = false;
  // True if host 0 and its ranks cannot be reached.
  bool host_0_lost = false;
};

/// Returns the ending that most likely caused the other endings; null if there are no
/// endings. The pointer points into `endings`. The arguments are those of
/// ending_of_host().
const Supervisor::Ending* first_failure(
    const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports, const Circumstances& when);

/// Returns the most likely Cause, the exit code, and a line that describes the cause.
/// `endings` and `reports` are in order of time.
HostEnding ending_of_host(
    const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports, const Circumstances& when);

}  // namespace tandem
