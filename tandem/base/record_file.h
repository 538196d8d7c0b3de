#pragma once

#include <string>

#include "tandem/base/descriptor.h"

namespace tandem {

/// A file to which records, such as lines, are appended. Not thread-safe.
class RecordFile {
 public:
  /// Opens the file `path`, or creates it if it is missing. `flags` are additional
  /// flags of open(), such as O_TRUNC. Throws DataError on failure.
  RecordFile(std::string path, int flags);

  /// Appends a record. Throws DataError on failure; the file then ends with the last
  /// record that was written completely.
  void append(const std::string& record);

  /// Returns whether the path no longer refers to this file, because it was removed,
  /// renamed or replaced.
  bool is_lost() const;

 private:
  std::string path_;
  Descriptor file_;
};

}  // namespace tandem
