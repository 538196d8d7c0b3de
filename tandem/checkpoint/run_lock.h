#pragma once

#include <string>

#include "tandem/base/file_lock.h"

namespace tandem {

/// Lock that prevents two runs from writing to the same directory, because they would
/// remove each other's unfinished checkpoints. Only rank 0 of a run locks the
/// directory, so a run never blocks itself.
///
/// The lock is a FileLock on DIRECTORY/run.lock. If the directory cannot be written, or
/// its file system has no locks, the run continues without a lock.
class RunLock {
 public:
  /// Locks `directory`. If another process holds the lock, waits up to two seconds,
  /// because that process may be about to exit. Then throws ConfigError, with the id
  /// and host of that process.
  [[nodiscard]] explicit RunLock(const std::string& directory);

 private:
  FileLock lock_;
};

/// Throws ConfigError if `directory` is a symbolic link or belongs to another user, who
/// could make the run write or remove files of this user. A missing directory is
/// accepted.
void check_own_directory(const std::string& directory);

}  // namespace tandem
