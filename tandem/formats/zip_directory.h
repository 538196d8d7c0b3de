#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tandem {

/// A whole file, or a range of bytes in a file, such as an entry of a zip archive.
struct FilePart {
  std::string path;
  // First byte of the range, and number of bytes. If the range extends past the end of
  // the file, it ends there.
  uint64_t offset = 0;
  uint64_t size = std::numeric_limits<uint64_t>::max();
};

/// A file in a zip archive, as described in the archive's directory.
struct ZipEntry {
  std::string name;
  bool compressed = false;
  // Unpacked size, in bytes.
  uint64_t size = 0;
  // Start of the entry's header, in bytes from the start of the archive.
  uint64_t header = 0;
};

/// Reads the bytes of a part to `to`. Throws DataError if the file ends earlier.
void read_bytes(const FilePart& part, void* to);

/// Reads the directory at the end of a zip archive, including ZIP64 (PKWARE's APPNOTE
/// 6.3.10, section 4.3). Reads no other part of the archive, so callers can check sizes
/// before they unpack entries. LibTorch's zip reader (miniz) finds the same directory.
///
/// Throws DataError if there is no directory or if it does not fit into the file.
std::vector<ZipEntry> read_zip_directory(const FilePart& archive);
std::vector<ZipEntry> read_zip_directory(const std::string& path);

/// Returns the range of bytes with the content of an entry. Throws DataError if the
/// entry is compressed, or is not in the archive.
FilePart bytes_of(const FilePart& archive, const ZipEntry& entry);

}  // namespace tandem
