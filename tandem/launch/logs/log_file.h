#pragma once

#include <string>

namespace tandem {

/// File to which the launcher writes output of ranks. Not thread-safe.
class LogFile {
 public:
  /// Creates the file, or empties an existing file. Throws DataError on failure.
  explicit LogFile(std::string path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Appends text. If a write fails, logs a warning and drops this and later texts; the
  /// run continues.
  void add(const char* data, size_t size);

 private:
  std::string path_;
  int fd_;
};

}  // namespace tandem
