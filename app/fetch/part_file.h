#pragma once

#include <cstdint>
#include <string>

namespace tandem::app {

/// SHA-256 of a file, in hex; "" when there is none. Throws DataError when it cannot be
/// read.
std::string sha256_of_file(const std::string& path);

/// A file that is not whole yet: PATH.part beside PATH, which no reader takes for it.
/// It outlives the process that wrote it, so that the next one goes on. For one process
/// at a time (TargetFolder). Throws DataError for what cannot be written.
class PartFile {
 public:
  /// With what is there already.
  explicit PartFile(std::string path);
  /// Removes it when nothing is in it.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// In bytes.
  int64_t size() const {
    return size_;
  }
  void append(const char* data, size_t size);
  void clear();
  std::string sha256() const;

  /// Becomes the file itself, in one step. Nothing else is to be called then.
  void rename_to_whole();

 private:
  const std::string whole_;
  const std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace tandem::app
