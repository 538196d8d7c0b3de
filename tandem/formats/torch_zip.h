#pragma once

#include <string>
#include <vector>

namespace tandem {

/// An entry of a zip archive to write. Does not own its bytes.
struct ZipRecord {
  std::string name;
  const void* data = nullptr;
  size_t size = 0;
};

/// Writes the zip archive of LibTorch's file formats: stored entries in a folder,
/// aligned to 64 bytes, with the entry `version`.
///
/// Replaces `path` atomically (files.h). Throws DataError.
void write_torch_zip(const std::string& path, const std::vector<ZipRecord>& records);

}  // namespace tandem
