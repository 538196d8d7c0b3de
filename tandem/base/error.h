#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem {

/// The errors of tandem. `what()` is one line: the part in brackets, what was
/// found, what was wanted, what to change. Control characters, which names in a
/// damaged or hostile file may hold, become '?'.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
};

/// The user asked for something impossible, by a flag, a recipe or a size. The program
/// exits with 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, broken or cannot be written. The program exits with 1.
class DataError : public Error {
 public:
  using Error::Error;
};

/// A peer or the network failed. The program exits with 1.
class CommError : public Error {
 public:
  /// `operation`: for instance "all_reduce #17 (bucket 2)". `cause`: what the
  /// backend said. `peer`: the rank that failed, where it is known.
  CommError(
      const std::string& operation, const std::string& cause,
      std::optional<int> peer = std::nullopt);

  const std::string& cause() const {
    return cause_;
  }
  std::optional<int> peer() const {
    return peer_;
  }

 private:
  std::string cause_;
  std::optional<int> peer_;
};

/// A signal stopped the run, whose checkpoint is saved; --resume auto continues it. The
/// program exits with kExitStopped, on every rank and host.
class StoppedError : public Error {
 public:
  using Error::Error;
};

/// EX_TEMPFAIL of sysexits.h: a batch script may start the command again.
constexpr int kExitStopped = 75;

/// A bug of ours; see TANDEM_CHECK.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// The text with '?' for what a terminal takes for a command: control characters, those
/// of Unicode too.
std::string printable(std::string text);

/// 2 for ConfigError, kExitStopped for StoppedError, 1 for everything else.
int exit_code(const std::exception& error);

/// Returns the exit code that another process of a run reports, or 1 if it is none of
/// the above.
int known_exit_code(int code);

/// Throws the error of an exit code: ConfigError, StoppedError or Error.
[[noreturn]] void throw_for_exit_code(int code, const std::string& message);

/// The first line of `error.what()`: other libraries append backtraces.
std::string first_line(const std::exception& error);

/// ", did you mean 'x'?" for the candidate nearest to `name`, or "" when none
/// is near.
std::string did_you_mean(
    const std::string& name, const std::vector<std::string>& candidates);

/// "a, b, c".
std::string join(
    const std::vector<std::string>& parts, const std::string& separator = ", ");

[[noreturn]] void fail_check(
    const char* condition, const char* file, int line, const std::string& message);

}  // namespace tandem

/// Throws InternalError unless `condition` holds. For our own mistakes only.
#define TANDEM_CHECK(condition, message)                             \
  do {                                                               \
    if (!(condition)) {                                              \
      ::tandem::fail_check(#condition, __FILE__, __LINE__, message); \
    }                                                                \
  } while (false)
