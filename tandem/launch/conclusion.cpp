#include "tandem/launch/conclusion.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/host.h"

namespace tandem {

namespace {

bool was_killed(const Supervisor::Ending& ending) {
  const int signal = ending.status.signal;
  const bool by_us = ending.stopped_by_us &&
                     (signal == SIGTERM || signal == SIGKILL || signal == SIGINT);
  return signal != 0 && !by_us;
}

bool has_saved(
    const Supervisor::Ending& ending, const std::optional<FailureReport>& report) {
  return (report ? report->code : ending.status.code) == kExitStopped;
}

// A rank's own error counts even if we stopped it on its way out. `alone`: the ranks
// cannot reach the store where they leave reports.
Cause cause_of(
    const Supervisor::Ending& ending, const std::optional<FailureReport>& report,
    bool alone) {
  if (ending.was_stopped) {
    return Cause::lost;
  }
  if (ending.status.ok()) {
    return Cause::none;
  }
  if (was_killed(ending)) {
    return Cause::killed;
  }
  if (has_saved(ending, report)) {
    return Cause::saved_and_stopped;
  }
  if (report) {
    return report->consequence ? Cause::consequence : Cause::own_error;
  }
  return ending.stopped_by_us ? Cause::stopped_by_us
         : alone              ? Cause::consequence
                              : Cause::own_error;
}

// Who was first to tell of what it suffers from: the others' may be that it left.
bool is_worse(
    Cause cause, const std::optional<FailureReport>& report, Cause than_cause,
    const std::optional<FailureReport>& than) {
  return cause > than_cause || (cause == than_cause && cause == Cause::consequence &&
                                report && than && report->order < than->order);
}

// What ranks decided together is nobody's own failure.
bool all_report(
    const std::vector<Supervisor::Ending>& endings, const ReportOf& report_of,
    const std::string& message) {
  return std::all_of(endings.begin(), endings.end(), [&](const auto& ending) {
    const auto report = report_of(ending.rank);
    return report && report->message == message;
  });
}

// How a rank ended that left no report. `memory_ran_out`: the kernel has killed.
std::string describe(
    const Supervisor::Ending& ending, const std::string& who, bool memory_ran_out) {
  if (ending.was_stopped) {
    return fmt::format(
        "{} (pid {}) was stopped by SIGSTOP or a terminal and answered no more, so all "
        "ranks were ended",
        who, ending.pid);
  }
  if (ending.status.signal == SIGKILL && memory_ran_out) {
    return fmt::format(
        "{} (pid {}) was killed by SIGKILL, since memory ran out; lower --batch-size, "
        "--accumulate or --nproc, or give the run more",
        who, ending.pid);
  }
  return fmt::format(
      "{} (pid {}) {}; the other ranks were stopped", who, ending.pid,
      ending.status.describe());
}

}  // namespace

HostEnding ending_of_host(
    const std::vector<Supervisor::Ending>& endings, const ReportOf& report_of,
    const Circumstances& when) {
  const Supervisor::Ending* worst = nullptr;
  std::optional<FailureReport> report;
  Cause cause = Cause::none;
  for (const auto& ending : endings) {
    const auto its_report = report_of(ending.rank);
    const Cause its_cause = cause_of(ending, its_report, when.alone);
    if (worst == nullptr || is_worse(its_cause, its_report, cause, report)) {
      worst = &ending;
      report = its_report;
      cause = its_cause;
    }
  }
  if (cause == Cause::none) {
    return {};
  }
  const std::string who = "rank " + std::to_string(worst->rank) +
                          (when.several_hosts ? " on " + host_name() : "");
  if (report && cause <= Cause::own_error && !worst->was_stopped) {
    const bool everybody = report->code == 2 || has_saved(*worst, report) ||
                           when.stop_signal != 0 ||
                           all_report(endings, report_of, report->message);
    return {
        cause, report->code, (everybody ? "" : who + " failed: ") + report->message};
  }
  const int code = has_saved(*worst, report) ? kExitStopped : 1;
  if (when.stop_signal != 0) {
    return {
        cause, code, fmt::format("stopped by SIG{}", sigabbrev_np(when.stop_signal))};
  }
  return {cause, code, describe(*worst, who, when.memory_ran_out)};
}

}  // namespace tandem
