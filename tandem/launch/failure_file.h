#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// The reason of a failure, as the process that failed reports it.
struct FailureReport {
  // Rank of the process; 0 if it is not a rank.
  int rank = 0;
  // Exit code of the error (exit_code()).
  int code = 1;
  // A peer or the network failed first, so the report of another rank may have the
  // reason.
  bool consequence = false;
  std::string message;
};

/// File in memory in which the processes that this program starts report their
/// failures. A launcher makes one file for its ranks; `tandem compare`, `plan` and
/// `bench` make one file for each program that they start. The object must outlive the
/// processes.
class FailureFile {
 public:
  FailureFile();
  ~FailureFile();
  FailureFile(const FailureFile&) = delete;
  FailureFile& operator=(const FailureFile&) = delete;

  /// Returns the environment variable with the path of the file, for the processes.
  /// Their child processes inherit the variable.
  Variables variables() const;

  /// Returns the reports so far, in the order in which they were written. Killed
  /// processes and programs other than tandem's write no report.
  std::vector<FailureReport> read() const;

  /// Throws the error of the first report, as throw_reported(). Does nothing if there
  /// is no report.
  void throw_first(const std::string& who) const;

 private:
  int fd_;
};

/// Reports a rank's error to its launcher, which prints the reason of a run's failure
/// once. Returns false if this process has to print its error itself, because it is not
/// a rank of tandem's launcher or the launcher has ended.
bool report_to_launcher(const std::exception& error);

/// Reports an error to the program that started this one, if that program has a
/// FailureFile. Does nothing in a rank, which uses report_to_launcher(), and in a
/// program that a rank started, because the rank can survive the program's failure.
void report_to_parent(const std::exception& error);

/// Throws the error that another program reported: ConfigError, StoppedError or Error,
/// with "WHO: " before the message.
[[noreturn]] void throw_reported(const std::string& who, const FailureReport& report);

}  // namespace tandem
