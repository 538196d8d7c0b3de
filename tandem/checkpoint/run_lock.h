#pragma once

#include <string>

#include "tandem/base/file_lock.h"

namespace tandem {

/// Lock that keeps other runs out of a run's directory: two runs would remove each
/// other's unfinished checkpoints. Only rank 0 locks it, on its host, so a run never
/// blocks itself.
///
/// It is a FileLock on DIRECTORY/run.lock. If the directory cannot be written, or its
/// file system has no locks, the run continues without a lock.
class RunLock {
 public:
  /// Waits up to two seconds, for a process that is ending. Throws ConfigError with the
  /// name of the process that writes there.
  [[nodiscard]] explicit RunLock(const std::string& directory);

 private:
  FileLock lock_;
};

/// Throws ConfigError if `directory` is a symbolic link or belongs to another user, who
/// could make the run write or remove files of this user. A missing directory is
/// accepted.
void check_own_directory(const std::string& directory);

}  // namespace tandem
