#pragma once

#include <string>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"

namespace tandem {

/// Error for a folder that was removed, renamed or replaced while a run used it. It is
/// a ConfigError, so the launcher does not start the ranks again: they would make the
/// folder again, or use the folder of another run.
class FolderLost : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// The folder of a run, identified by an open descriptor instead of its name. Not
/// thread-safe, except check().
class HeldFolder {
 public:
  /// Stores the path of the folder. Call hold() to open it.
  explicit HeldFolder(const std::string& path);

  /// Opens the folder, unless it is open or missing. Does not follow a link.
  void hold();

  /// Throws FolderLost if the path no longer refers to the open folder. Does nothing if
  /// hold() has not opened the folder. Thread-safe.
  void check() const;

  /// Returns the path without slashes at its end.
  const std::string& path() const {
    return path_;
  }

 private:
  std::string path_;
  Descriptor folder_;
};

/// Throws FolderLost with the line for a run's folder. `found` describes the change,
/// such as "was removed or renamed".
[[noreturn]] void fail_folder_lost(const std::string& path, const std::string& found);

}  // namespace tandem
