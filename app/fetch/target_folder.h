#pragma once

#include <chrono>
#include <string>

namespace tandem::app {

/// A folder that one process at a time fetches into: it is made where it is missing,
/// and goes again when nothing came into it. A process that is killed keeps nobody out;
/// nor does anybody where the file system has no locks.
class TargetFolder {
 public:
  /// Waits for another process that has it, and says so. Throws DataError when nothing
  /// can be written there, when stop_signal() ends the waiting, and when nothing has
  /// come into the folder for `patience`: the other one is stopped.
  TargetFolder(std::string folder, std::chrono::seconds patience);
  ~TargetFolder();
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;

  const std::string& path() const {
    return folder_;
  }

 private:
  // False where another process has it.
  bool lock();

  const std::string folder_;
  const std::string lock_path_;
  const bool is_new_;
  int lock_ = -1;
};

/// Whether files can be made in a folder, which is made where it is missing and then
/// goes again.
bool can_write_into(const std::string& folder);

}  // namespace tandem::app
