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

/// Writes a zip archive in the form of LibTorch's file formats: uncompressed entries in
/// a folder, aligned to 64 bytes, with the entry `version`.
///
/// Replaces `path` atomically (files.h). Throws DataError if the file cannot be
/// written.
void write_torch_zip(const std::string& path, const std::vector<ZipRecord>& records);

}  // namespace tandem
