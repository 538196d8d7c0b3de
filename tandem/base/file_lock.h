#pragma once

#include <string>

#include "tandem/base/deadline.h"

namespace tandem {

/// Holds an exclusive lock between processes while it lives; the file says which
/// process that is.
class FileLock {
 public:
  /// Waits for other holders; makes the file and its directory when they are missing.
  /// Throws DataError that names who has it when `deadline` passes.
  [[nodiscard]] FileLock(const std::string& path, const Deadline& deadline);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace tandem
