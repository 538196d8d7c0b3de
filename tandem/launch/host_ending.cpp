#include "tandem/launch/host_ending.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

struct RankEnding {
  const Supervisor::Ending* process = nullptr;
  // Null if the rank wrote no report.
  const FailureReport* report = nullptr;
  Cause cause = Cause::none;
};

bool was_killed_by_others(const Supervisor::Ending& process) {
  const int signal = process.status.signal;
  const bool by_us = process.stopped_by_us &&
                     (signal == SIGTERM || signal == SIGKILL || signal == SIGINT);
  return signal != 0 && !by_us;
}

bool has_saved(const Supervisor::Ending& process, const FailureReport* report) {
  return (report != nullptr ? report->code : process.status.code) == kExitStopped;
}

// If a rank reported an error, that error is the cause, even if the launcher stopped
// the rank while it exited.
Cause cause_of(
    const Supervisor::Ending& process, const FailureReport* report,
    const Circumstances& when) {
  if (process.halt != Halt::none || !process.left.empty()) {
    return Cause::lost;
  }
  if (process.status.ok()) {
    return Cause::none;
  }
  // An uncaught exception ends a process by SIGABRT.
  const bool threw = process.status.signal == SIGABRT && report != nullptr;
  if (was_killed_by_others(process) && !threw) {
    return Cause::killed;
  }
  if (has_saved(process, report)) {
    return when.stop_signal != 0   ? Cause::saved_and_stopped
           : process.stopped_by_us ? Cause::stopped_by_us
                                   : Cause::saved;
  }
  if (report != nullptr) {
    return report->consequence ? Cause::consequence : Cause::own_error;
  }
  if (process.stopped_by_us) {
    return Cause::stopped_by_us;
  }
  // If host 0 is lost, the rank most likely failed because it lost the ranks of host 0.
  return when.host_0_lost ? Cause::consequence : Cause::own_error;
}

// Returns whether `one` is more likely than `other` to be the cause. If both are
// consequences, the earlier report is more likely, because the later one may follow
// from it. Reports are in order of time.
bool is_likelier(const RankEnding& one, const RankEnding& other) {
  const bool first_consequence = one.cause == Cause::consequence &&
                                 one.report != nullptr && other.report != nullptr &&
                                 one.report < other.report;
  return one.cause > other.cause || (one.cause == other.cause && first_consequence);
}

RankEnding likeliest_cause(
    const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports, const Circumstances& when) {
  RankEnding worst;
  for (const auto& process : endings) {
    const auto* report = report_of(process.rank, reports);
    const RankEnding ending{&process, report, cause_of(process, report, when)};
    if (worst.process == nullptr || is_likelier(ending, worst)) {
      worst = ending;
    }
  }
  return worst;
}

// Returns whether all ranks report the same error, which is then not the failure of a
// single rank.
bool all_report(
    const std::string& message, const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports) {
  return std::all_of(endings.begin(), endings.end(), [&](const auto& ending) {
    const auto* report = report_of(ending.rank, reports);
    return report != nullptr && report->message == message;
  });
}

// Describes the end of a rank that wrote no report.
std::string describe(
    const Supervisor::Ending& ending, const std::string& who, bool memory_ran_out) {
  if (!ending.left.empty()) {
    return fmt::format("{} (pid {}) {}", who, ending.pid, ending.left);
  }
  if (ending.halt != Halt::none) {
    return fmt::format(
        "{} (pid {}) was {} and did not answer, so all ranks were ended", who,
        ending.pid,
        ending.halt == Halt::frozen ? "frozen by its control group"
                                    : "stopped by SIGSTOP or a terminal");
  }
  if (ending.status.signal == SIGKILL && memory_ran_out) {
    return fmt::format(
        "{} (pid {}) was killed by SIGKILL because memory ran out; lower --batch-size, "
        "--accumulate or --nproc, or give the run more memory",
        who, ending.pid);
  }
  return fmt::format(
      "{} (pid {}) {}; the other ranks were stopped", who, ending.pid,
      ending.status.describe());
}

}  // namespace

std::string to_text(const HostEnding& ending) {
  return fmt::format(
      "{} {}{} {}", static_cast<int>(ending.cause), ending.code,
      ending.again    ? "+"
      : ending.leaves ? "-"
                      : "",
      ending.reason);
}

std::optional<HostEnding> ending_from(const std::string& text) {
  constexpr size_t kMostBytes = 4096;
  std::istringstream words(text);
  std::string cause;
  std::string code;
  const bool complete = (words >> cause >> code) && words.get() == ' ';
  const auto number = parse_number<int>(cause);
  if (!complete || !number || *number < 0 ||
      *number > static_cast<int>(Cause::killed)) {
    return std::nullopt;
  }
  HostEnding ending;
  ending.cause = static_cast<Cause>(*number);
  ending.leaves = ends_with(code, "-");
  ending.again = ends_with(code, "+") && ending.cause != Cause::none;
  code = code.substr(0, code.find_last_not_of("+-") + 1);
  if (ending.cause != Cause::none) {
    ending.code = known_exit_code(parse_number<int>(code).value_or(1));
  }
  ending.reason =
      printable(text.substr(static_cast<size_t>(words.tellg()), kMostBytes));
  return ending;
}

bool is_about_files(const std::string& message) {
  return message.rfind("[data] ", 0) == 0 || message.rfind("[files] ", 0) == 0;
}

const FailureReport* report_of(int rank, const std::vector<FailureReport>& reports) {
  const auto found = std::find_if(
      reports.begin(), reports.end(),
      [&](const auto& report) { return report.rank == rank; });
  return found == reports.end() ? nullptr : &*found;
}

const Supervisor::Ending* first_failure(
    const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports, const Circumstances& when) {
  return likeliest_cause(endings, reports, when).process;
}

HostEnding ending_of_host(
    const std::vector<Supervisor::Ending>& endings,
    const std::vector<FailureReport>& reports, const Circumstances& when) {
  const auto [process, report, cause] = likeliest_cause(endings, reports, when);
  if (cause == Cause::none) {
    return {};
  }
  const std::string who = "rank " + std::to_string(process->rank) +
                          (when.several_hosts ? " on " + host_name() : "");
  const bool saved = has_saved(*process, report);
  const bool halted = process->halt != Halt::none || !process->left.empty();
  if (report != nullptr && cause <= Cause::own_error && !halted) {
    const bool of_host = when.several_hosts && is_about_files(report->message);
    const bool of_all_ranks =
        saved || when.stop_signal != 0 ||
        (!of_host && (report->code == kExitMisuse ||
                      all_report(report->message, endings, reports)));
    return {
        cause, report->code, (of_all_ranks ? "" : who + " failed: ") + report->message};
  }
  const int code = saved ? kExitStopped : known_exit_code(process->status.code);
  if (when.stop_signal != 0 && process->left.empty()) {
    return {
        cause, code, fmt::format("stopped by SIG{}", sigabbrev_np(when.stop_signal))};
  }
  return {cause, code, describe(*process, who, when.memory_ran_out)};
}

}  // namespace tandem
