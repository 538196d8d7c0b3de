#pragma once

#include <sys/types.h>

#include <ctime>
#include <optional>
#include <string>

#include "tandem/base/process.h"

namespace tandem {

/// Returns the first line of the message in an error file that has the JSON form of
/// PyTorch's torchelastic. A Python program with the decorator @record writes such a
/// file. Returns nullopt if the file is missing or does not have this form.
std::optional<std::string> message_in_error_file(const std::string& path);

/// The end of a rank, for write_error_file().
struct RankFailure {
  pid_t pid = 0;
  ExitStatus status;
  std::time_t time = 0;
  // The rank's own error; "" if it is not known.
  std::string message;
};

/// Writes an error file for a rank that has not written an error file. If the rank's
/// own error is not known, the message describes the end of its process, such as
/// "Signal 9 (SIGKILL) received by PID 7". Throws DataError if the file cannot be
/// written.
void write_error_file(const std::string& path, const RankFailure& failure);

}  // namespace tandem
