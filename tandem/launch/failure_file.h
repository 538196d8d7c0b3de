#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// The reason of a failure, as the process that failed reports it.
struct FailureReport {
  // The process's rank; 0 if it is no rank.
  int rank = 0;
  // Exit code that the error asks for.
  int code = 1;
  // A peer or the network failed first, so another rank's report has the reason.
  bool consequence = false;
  std::string message;
};

/// Memory in which the processes that this program starts report their failures. A
/// launcher makes one for its ranks; `tandem compare`, `plan` and `bench` make one for
/// each program that they start. It must outlive the processes.
class FailureFile {
 public:
  FailureFile();
  ~FailureFile();
  FailureFile(const FailureFile&) = delete;
  FailureFile& operator=(const FailureFile&) = delete;

  /// Returns the variable that names the file. The processes that a process starts
  /// inherit it.
  Variables variables() const;

  /// Returns the reports so far, in the order in which they were written. A process
  /// that was killed, and a program of another kind, leave none.
  std::vector<FailureReport> read() const;

 private:
  int fd_;
};

/// Reports a rank's error to its launcher, which prints the reason of a run's failure
/// once. Returns false if this process has to print its error itself: it is no rank of
/// our launcher, or the launcher is gone.
bool report_to_launcher(const std::exception& error);

/// Reports an error to the program that started this one, if that program has a
/// FailureFile. A rank's reports are left to report_to_launcher(), since a rank can
/// survive the failure of a program that it started.
void report_to_parent(const std::exception& error);

/// Throws the error of another program's report: ConfigError, StoppedError or Error,
/// with "WHO: " before the message.
[[noreturn]] void throw_reported(const std::string& who, const FailureReport& report);

}  // namespace tandem
