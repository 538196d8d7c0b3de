#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// Error that a process reported about itself.
struct FailureReport {
  // Rank of the process; 0 if it is not a rank.
  int rank = 0;
  // Exit code of the error (exit_code()).
  int code = 1;
  // True if another rank or the network failed first. The report of another rank may
  // then have the reason.
  bool consequence = false;
  std::string message;
};

/// File in memory to which the processes that this program starts write their errors. A
/// launcher makes one file for its ranks; a command such as `tandem compare` makes one
/// file for each program that it starts. The object must outlive the processes.
class FailureFile {
 public:
  FailureFile();
  ~FailureFile();
  FailureFile(const FailureFile&) = delete;
  FailureFile& operator=(const FailureFile&) = delete;

  /// Returns the environment variable that contains the path of the file. Add it to the
  /// environment of the processes; their child processes inherit it.
  Variables variables() const;

  /// Returns all reports so far, in the order in which they were written. A process
  /// that was killed, or that runs another program than tandem's, writes no report.
  std::vector<FailureReport> read() const;

  /// Throws the error of the first report, if there is a report. The exit code in the
  /// report determines the type (throw_for_exit_code()). The message begins with `who`
  /// and a colon.
  void throw_first(const std::string& who) const;

 private:
  int fd_;
};

/// Reports a rank's error to its launcher, which prints one reason for the failure of
/// the run. Returns false if this process was not started as a rank by tandem's
/// launcher, or if the launcher has ended. The process then has to print its error.
bool report_to_launcher(const std::exception& error);

/// Reports an error to the program that started this one, if that program has a
/// FailureFile. Does nothing in a rank, which uses report_to_launcher(). Also does
/// nothing in a program that a rank started, because such a failure need not end the
/// rank.
void report_to_parent(const std::exception& error);

}  // namespace tandem
