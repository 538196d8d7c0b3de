#include "tandem/launch/failure_summary.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/rank_env.h"

namespace tandem {

namespace {

using nlohmann::json;

// Describes the end of a rank that reported no error.
std::string message_for(const Supervisor::Ending& ending) {
  const int signal = ending.status.signal;
  if (signal == 0) {
    return fmt::format("PID {} exited with code {}", ending.pid, ending.status.code);
  }
  const char* name = sigabbrev_np(signal);
  return fmt::format(
      "Signal {} (SIG{}) received by PID {}", signal, name == nullptr ? "?" : name,
      ending.pid);
}

// Returns the member "message" of an object, or null.
json member_message(const json& value) {
  return value.is_object() && value.contains("message") ? value["message"] : json();
}

// Programs write {"message": {"message": TEXT, ...}} or {"message": TEXT}.
std::optional<std::string> text_of(const json& content) {
  const json message = member_message(content);
  const json text = message.is_object() ? member_message(message) : message;
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

// Calls `write`. If that fails, logs a warning.
template <typename Write>
void try_to_write(const Write& write) {
  try {
    write();
  } catch (const DataError& error) {
    log_warning("[launch] an error file is missing: " + std::string(error.what()));
  }
}

// Copies the error file for a scheduler that started this launcher. Writes in place,
// because the path may be a mount point, such as /dev/termination-log of Kubernetes.
void pass_on(const std::string& error_file) {
  const auto path = get_env("TORCHELASTIC_ERROR_FILE").value_or("");
  if (path.empty() || !file_exists(error_file)) {
    return;
  }
  try_to_write([&] {
    const auto text = read_file(error_file);
    LogFile(path).add(text.data(), text.size());
  });
}

}  // namespace

std::optional<std::string> message_in_error_file(const std::string& path) {
  constexpr size_t kMostBytes = 16 << 20;
  try {
    const auto content = json::parse(read_file(path, kMostBytes), nullptr, false);
    const auto text = text_of(content);
    return text ? std::optional(printable(text->substr(0, text->find('\n'))))
                : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

void write_error_file(
    const std::string& path, const Supervisor::Ending& ending,
    const std::string& message) {
  const auto& status = ending.status;
  const auto time = std::chrono::system_clock::to_time_t(ending.time);
  const json content = {
      {"message",
       {{"message", message.empty() ? message_for(ending) : message},
        {"errorCode", status.signal != 0 ? -status.signal : status.code},
        {"extraInfo", {{"timestamp", std::to_string(time)}}}}}};
  // Messages may contain invalid UTF-8.
  replace_file(
      path, content.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

bool complete_error_files(
    const LogDirectory& logs, int first_rank,
    const std::vector<Supervisor::Ending>& endings,
    std::vector<FailureReport>& reports) {
  bool has_own = false;
  for (const auto& ending : endings) {
    if (ending.status.ok()) {
      continue;
    }
    const auto* report = report_of(ending.rank, reports);
    const auto path = logs.error_file(ending.rank - first_rank);
    const auto message = message_in_error_file(path);
    has_own = has_own || file_exists(path);
    if (message && report == nullptr) {
      reports.push_back({ending.rank, 1, ending.stopped_by_us, *message});
    } else if (!ending.stopped_by_us && !file_exists(path)) {
      try_to_write([&] {
        write_error_file(path, ending, report == nullptr ? "" : report->message);
      });
    }
  }
  return has_own;
}

void add_printed_errors(
    const Supervisor& supervisor, const std::vector<Supervisor::Ending>& endings,
    std::vector<FailureReport>& reports) {
  for (const auto& ending : endings) {
    if (ending.status.ok() || report_of(ending.rank, reports) != nullptr) {
      continue;
    }
    const auto error = supervisor.last_error(ending.rank);
    if (!error.empty()) {
      // The message of a CommError begins with "[comm] OPERATION failed". A rank that
      // the launcher stops may also print an error, but it does not abort.
      const bool lost_another =
          error.rfind("[comm] ", 0) == 0 && error.find(" failed") != std::string::npos;
      const bool consequence =
          lost_another || (ending.stopped_by_us && ending.status.signal != SIGABRT);
      reports.push_back(
          {ending.rank, known_exit_code(ending.status.code), consequence, error});
    }
  }
}

bool needs_summary(
    const HostEnding& ending, const Circumstances& when, bool have_reported) {
  const bool failed = ending.cause == Cause::lost || ending.cause == Cause::own_error ||
                      ending.cause == Cause::killed;
  return failed && when.stop_signal == 0 &&
         !(have_reported && ending.code == kExitMisuse);
}

void summarize_failure(
    const Supervisor::Ending& first, int first_rank, const std::string& message,
    const Supervisor& supervisor, const LogDirectory& logs) {
  constexpr size_t kMostLines = 20;
  const auto hidden = supervisor.last_hidden_lines(first.rank, kMostLines);
  const int local_rank = first.rank - first_rank;
  const std::string error_file = logs.error_file(local_rank);
  const std::string border(60, '=');
  std::string block = fmt::format(
      "{}\nfirst failure: rank {} (local rank {})\n"
      "  host       : {}\n  pid        : {}\n  status     : {}\n{}"
      "  time       : {:%Y-%m-%d_%H:%M:%S}\n{}",
      border, first.rank, local_rank, host_name(), first.pid, first.status.describe(),
      message.empty() ? "" : "  error      : " + message + "\n",
      fmt::localtime(std::chrono::system_clock::to_time_t(first.time)),
      logs.is_kept() ? "  error file : " + error_file + "\n" : "");
  if (!hidden.lines.empty()) {
    block += fmt::format(
        "  last {} of {}:\n",
        hidden.lines.size() == 1 ? "line"
                                 : fmt::format("{} lines", hidden.lines.size()),
        hidden.stream);
  }
  for (const auto& line : hidden.lines) {
    block += "    " + line + "\n";
  }
  print_now(stderr, block + border + "\n");
  pass_on(error_file);
}

}  // namespace tandem
