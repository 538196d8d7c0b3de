#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// A file in a zip archive, as the archive's directory describes it.
struct ZipEntry {
  std::string name;
  bool compressed = false;
  // Bytes when unpacked.
  uint64_t size = 0;
};

/// Reads the directory at the end of a zip archive, also ZIP64 (PKWARE's APPNOTE
/// 6.3.10, 4.3). Only the directory is read, so that sizes are known before anything is
/// unpacked. It finds the same directory as LibTorch's reader (miniz).
///
/// Throws DataError if there is no directory or it does not fit into the file.
std::vector<ZipEntry> read_zip_directory(const std::string& path);

}  // namespace tandem
