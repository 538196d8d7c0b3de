#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/base/descriptor.h"

namespace tandem {

/// An exclusive lock between processes: the kernel's lock (flock) on a file. The file
/// contains the name of the process that has the lock.
///
/// If the object has the lock, its destructor removes the file, unless the path refers
/// to another file by then. If the process is killed, the kernel releases the lock, and
/// the remaining file has no effect. On NFS the lock works between hosts.
class FileLock {
 public:
  /// Stores the path of the lock file. Call try_lock() to lock the file.
  explicit FileLock(std::string path) : path_(std::move(path)) {}
  /// Creates missing directories and waits for the lock. Throws DataError if the file
  /// cannot be locked, or if another process still has the lock at `deadline`. The
  /// error then names that process.
  [[nodiscard]] FileLock(const std::string& path, const Deadline& deadline);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Result of try_lock().
  enum class Result {
    locked,
    // Another process has the lock, or had it a moment ago.
    taken,
    // The file cannot be opened; errno has the reason.
    no_file,
    // The file system does not support locks; errno has the reason.
    no_locks
  };
  /// Tries to lock the file, without waiting.
  Result try_lock();

  /// Returns whether this object has locked a file to which the path no longer refers.
  /// Another process can then lock the path.
  bool is_lost() const;

  /// Returns the name of the process that has the lock, such as "process 7 on host
  /// NAME".
  std::string holder() const;

  const std::string& path() const {
    return path_;
  }

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace tandem
