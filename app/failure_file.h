#pragma once

#include <optional>
#include <string>

#include "tandem/base/process.h"
#include "tandem/config/options/setting.h"

namespace tandem {

namespace app {

/// The errors of base/error.h.
enum class FailureKind { config, data, comm, internal, other };

/// Why a program of ours failed, as it says itself.
struct Failure {
  FailureKind kind = FailureKind::other;
  std::string message;
};

/// Where a program of ours that another one starts (`compare` a run, `plan` a
/// measurement) leaves its Failure, beside the line that it prints: memory that it
/// opens by the name in a variable. Make one for each program that is started; it has
/// to live until that has ended.
class FailureFile {
 public:
  FailureFile();
  ~FailureFile();
  FailureFile(const FailureFile&) = delete;
  FailureFile& operator=(const FailureFile&) = delete;

  /// For the environment of the program and of those that it starts.
  Variables variables() const;

  /// What the program left; nullopt when it left nothing, because it was killed or
  /// ended well. Of several processes (mpirun's ranks) that of the first that failed.
  std::optional<Failure> read() const;

 private:
  int fd_;
};

/// Leaves an error with the program that started this one, if that wants to know.
/// What cannot be written is lost: the exit code still tells of the failure.
void leave_failure(const std::exception& error);

/// Throws another program's failure as our own: ConfigError, DataError or Error, with
/// "WHO: " before the message.
[[noreturn]] void throw_failure(const std::string& who, const Failure& failure);

}  // namespace app

template <>
struct Choices<app::FailureKind> {
  static constexpr Choice<app::FailureKind> rows[] = {
      {app::FailureKind::config, "config"},
      {app::FailureKind::data, "data"},
      {app::FailureKind::comm, "comm"},
      {app::FailureKind::internal, "internal"},
      {app::FailureKind::other, "other"}};
};

}  // namespace tandem
