#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem {

/// Base class of all tandem errors.
///
/// `what()` is one line. It usually has the part of tandem in brackets, the problem,
/// and the action to take. Control characters, which a damaged or hostile file may
/// contain, are replaced with '?'.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
};

/// Error for an invalid setting, such as a flag, a key of a recipe or a size. The
/// program exits with code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// Error for a file that is missing or damaged, or that cannot be read, written or
/// locked. The program exits with code 1.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Error for a failure of another rank or of the network. The program exits with
/// code 1.
class CommError : public Error {
 public:
  /// `operation` is, for example, "all_reduce #17 (bucket 2)", and `cause` is the
  /// backend's message. `peer` is the rank that failed, if it is known.
  CommError(
      const std::string& operation, const std::string& cause,
      std::optional<int> peer = std::nullopt);

  /// Returns the backend's message, without the name of the operation.
  const std::string& cause() const {
    return cause_;
  }
  /// Returns the rank that failed, if it is known.
  std::optional<int> peer() const {
    return peer_;
  }

 private:
  std::string cause_;
  std::optional<int> peer_;
};

/// Error of a run that stopped because of a signal and can be continued, usually from a
/// checkpoint (`--resume auto`). The program exits with kExitStopped on every rank and
/// host.
class StoppedError : public Error {
 public:
  using Error::Error;
};

/// Exit code of a stopped run (EX_TEMPFAIL in sysexits.h). A batch script can run the
/// same command again to continue.
constexpr int kExitStopped = 75;

/// Error for a bug in tandem, usually thrown by TANDEM_CHECK.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// Returns `text` with each control character, including Unicode's, replaced by '?',
/// because a terminal would execute control characters.
std::string printable(std::string text);

/// Returns the program's exit code for an error: 2 for ConfigError, kExitStopped for
/// StoppedError, otherwise 1.
int exit_code(const std::exception& error);

/// Checks `code`, the exit code that another process of the run reported. Returns
/// `code` if it is 2 or kExitStopped, otherwise 1.
int known_exit_code(int code);

/// Throws an error whose exit code is `code`: ConfigError for 2, StoppedError for
/// kExitStopped, Error for other codes.
[[noreturn]] void throw_for_exit_code(int code, const std::string& message);

/// Returns the first line of `error.what()`, without the backtrace that some libraries
/// append. If an allocation failed, returns a message that names the settings to lower.
std::string first_line(const std::exception& error);

/// Returns ", did you mean 'x'?" for the candidate most similar to `name`, or "" if no
/// candidate is similar.
std::string did_you_mean(
    const std::string& name, const std::vector<std::string>& candidates);

/// Joins texts with a separator between them, such as "a, b, c".
std::string join(
    const std::vector<std::string>& parts, const std::string& separator = ", ");

/// Throws InternalError. Only TANDEM_CHECK calls it.
[[noreturn]] void fail_check(
    const char* condition, const char* file, int line, const std::string& message);

}  // namespace tandem

/// Throws InternalError unless `condition` is true. Use it for bugs in tandem, not for
/// errors of a user or a file.
#define TANDEM_CHECK(condition, message)                             \
  do {                                                               \
    if (!(condition)) {                                              \
      ::tandem::fail_check(#condition, __FILE__, __LINE__, message); \
    }                                                                \
  } while (false)
