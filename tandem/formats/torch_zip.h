#pragma once

#include <cstddef>
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

/// Reads the bytes of a part to `to`. Throws DataError if the file ends earlier.
void read_bytes(const FilePart& part, void* to);

/// A file in a zip archive, as described in the archive's directory.
struct ZipEntry {
  std::string name;
  bool compressed = false;
  // Unpacked size, in bytes.
  uint64_t size = 0;
  // Start of the entry's header, in bytes from the start of the archive.
  uint64_t header = 0;
};

/// A zip archive of LibTorch (torch.save, torch.export.save, torch.jit.save), including
/// ZIP64 (PKWARE's APPNOTE 6.3.10, section 4.3). LibTorch's zip reader (miniz) finds
/// the same directory.
///
/// The constructor reads and checks only the directory, so that no entry can use more
/// memory than the size of the file. Errors are "[PART] 'PATH' PROBLEM; ACTION".
class TorchZip {
 public:
  /// Reads the directory at the end of `archive`. `part` and `action` are the first
  /// and the last text of errors.
  ///
  /// Throws DataError if the file is missing or has no directory, if the directory does
  /// not fit into the file, or if two entries have the same name. Throws ConfigError if
  /// the entries have more bytes than the file, or if an entry is compressed.
  /// TorchScript's sources, "code/...", may be compressed.
  TorchZip(FilePart archive, std::string part, std::string action);

  /// Returns the entries, sorted by name. Names do not include the folder that encloses
  /// all entries.
  const std::vector<ZipEntry>& entries() const {
    return entries_;
  }

  /// Returns the number of bytes of the archive.
  uint64_t size() const {
    return archive_.size;
  }

  /// Returns an entry; null if the archive has no entry of this name.
  const ZipEntry* find(const std::string& name) const;

  /// Returns whether the name of an entry begins with `start`.
  bool has_start(const std::string& start) const;

  /// Returns the range of the file with the content of an entry. Throws DataError if
  /// the archive has no such entry, or if the entry does not fit into the file.
  FilePart range_of(const std::string& name) const;

  /// Returns the content of an entry. Throws the errors of range_of().
  std::string content_of(const std::string& name) const;

 private:
  void check_entries() const;
  [[noreturn]] void fail(const std::string& problem) const;
  [[noreturn]] void refuse(const std::string& problem) const;

  FilePart archive_;
  std::string part_;
  std::string action_;
  std::vector<ZipEntry> entries_;
};

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
