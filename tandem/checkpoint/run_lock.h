#pragma once

#include <string>

#include "tandem/base/file_lock.h"

namespace tandem {

/// Keeps every other run out of a run's directory: two of them would remove each
/// other's unfinished checkpoints. Only rank 0 of a run takes it, on whichever host, so
/// that a run never meets itself.
///
/// It is a FileLock on DIRECTORY/run.lock. If the directory cannot be written, or its
/// file system has no locks, the run continues without a lock.
class RunLock {
 public:
  /// Waits up to two seconds for a process that is just ending. Throws ConfigError that
  /// names the process which writes there.
  [[nodiscard]] explicit RunLock(const std::string& directory);

 private:
  FileLock lock_;
};

/// Throws ConfigError where `directory` is a symbolic link or belongs to another user,
/// who could have a run write, or remove, what is not its own. One that is not there
/// yet is fine.
void check_own_directory(const std::string& directory);

}  // namespace tandem
