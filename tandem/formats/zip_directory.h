#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tandem {

/// A file, or bytes within a file that are a file themselves.
struct FilePart {
  std::string path;
  // First byte, and number of bytes. A part ends with its file at the latest.
  uint64_t offset = 0;
  uint64_t size = std::numeric_limits<uint64_t>::max();
};

/// A file in a zip archive, as the archive's directory describes it.
struct ZipEntry {
  std::string name;
  bool compressed = false;
  // Unpacked size, in bytes.
  uint64_t size = 0;
  // Start of the entry's header, in bytes from the start of the archive.
  uint64_t header = 0;
};

/// Reads the directory at the end of a zip archive, including ZIP64 (PKWARE's APPNOTE
/// 6.3.10, 4.3). Reads only the directory, so that callers can check sizes before
/// unpacking. LibTorch's zip reader (miniz) finds the same directory.
///
/// Throws DataError if there is no directory or it does not fit into the file.
std::vector<ZipEntry> read_zip_directory(const FilePart& archive);
std::vector<ZipEntry> read_zip_directory(const std::string& path);

/// Returns the bytes of an entry. Throws DataError if the entry is compressed, or is
/// not in the archive.
FilePart bytes_of(const FilePart& archive, const ZipEntry& entry);

}  // namespace tandem
