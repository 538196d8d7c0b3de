#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// A file in a zip archive, as the archive's directory describes it.
struct ZipEntry {
  std::string name;
  bool compressed = false;
  // Unpacked size, in bytes.
  uint64_t size = 0;
};

/// Reads the directory at the end of a zip archive, including ZIP64 (PKWARE's APPNOTE
/// 6.3.10, 4.3). Reads only the directory, so that callers can check sizes before
/// unpacking. LibTorch's zip reader (miniz) finds the same directory.
///
/// Throws DataError if there is no directory or it does not fit into the file.
std::vector<ZipEntry> read_zip_directory(const std::string& path);

}  // namespace tandem
