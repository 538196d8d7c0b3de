#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/failure_file.h"
#include "tandem/launch/host_ending.h"
#include "tandem/launch/logs/log_directory.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

/// Returns the first line of the message in an error file that has the JSON form of
/// PyTorch's torchelastic. A Python program with the decorator @record writes such a
/// file. Returns nullopt if the file is missing or does not have this form.
std::optional<std::string> message_in_error_file(const std::string& path);

/// Writes an error file for a rank that has not written an error file. `message` is the
/// rank's own error. If it is "", the file describes the end of the process, such as
/// "Signal 9 (SIGKILL) received by PID 7". Throws DataError if the file cannot be
/// written.
void write_error_file(
    const std::string& path, const Supervisor::Ending& ending,
    const std::string& message);

/// Completes the error files of ranks that have failed. `endings` and `reports` are in
/// order of time. `first_rank` is the rank with local rank 0.
///
/// If a rank has written an error file but no report, adds its message to `reports`.
/// Writes the missing error files of ranks that the launcher did not stop. If a file
/// cannot be written, logs a warning. Returns whether a rank has written an error file.
bool complete_error_files(
    const LogDirectory& logs, int first_rank,
    const std::vector<Supervisor::Ending>& endings,
    std::vector<FailureReport>& reports);

/// Adds a report for each rank that failed without one, if its standard error has an
/// error (StreamSink::last_error()). `endings` and `reports` are in order of time.
void add_printed_errors(
    const Supervisor& supervisor, const std::vector<Supervisor::Ending>& endings,
    std::vector<FailureReport>& reports);

/// Returns whether a rank of this host failed, so that a summary is useful. Returns
/// false if a signal stopped the run, or if the ranks reported an invalid setting.
/// `have_reported` is true if ranks wrote to their FailureFile.
bool needs_summary(
    const HostEnding& ending, const Circumstances& when, bool have_reported);

/// Prints a block about the rank that failed first to standard error. The block has the
/// rank, host, process, status, error, time, error file, and the rank's last lines that
/// are not on the console. `message` is the rank's error; "" if it is unknown. The
/// error file is named only if the log directory is kept.
///
/// If the variable TORCHELASTIC_ERROR_FILE is set for this process, as under TorchX,
/// also copies the rank's error file to that path.
void summarize_failure(
    const Supervisor::Ending& first, int first_rank, const std::string& message,
    const Supervisor& supervisor, const LogDirectory& logs);

}  // namespace tandem
