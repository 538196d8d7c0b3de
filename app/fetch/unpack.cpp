#include "app/fetch/download.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/base/signals.h"

namespace tandem::app {

namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;

using Archive = std::unique_ptr<archive, decltype(&archive_read_free)>;

[[noreturn]] void fail_unpacking(const std::string& path, const std::string& what) {
  throw DataError("[fetch] '" + path + "' " + what + "; fetch it again");
}

// Throws DataError for an error of libarchive. Accepts warnings, which concern names
// and attributes; contents are checked by SHA-256.
void check(const Archive& archive, int code, const std::string& path) {
  if (code < ARCHIVE_OK && code != ARCHIVE_WARN) {
    const char* reason = archive_error_string(archive.get());
    fail_unpacking(
        path, "cannot be unpacked: " + std::string(reason == nullptr ? "" : reason));
  }
}

Archive open_archive(const std::string& path) {
  Archive archive(archive_read_new(), &archive_read_free);
  if (archive == nullptr) {
    throw std::bad_alloc();
  }
  archive_read_support_filter_gzip(archive.get());
  archive_read_support_format_tar(archive.get());
  check(
      archive, archive_read_open_filename(archive.get(), path.c_str(), kChunkBytes),
      path);
  return archive;
}

// Returns the name of an entry without "./"; "" for a directory, a link or a device.
std::string file_name(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr || archive_entry_filetype(entry) != AE_IFREG) {
    return "";
  }
  return std::strncmp(name, "./", 2) == 0 ? name + 2 : name;
}

// Writes the current member of the archive to a file.
void write_member(
    const Archive& archive, const std::string& path, const RemoteFile& file,
    const std::string& folder) {
  const std::string target = folder + "/" + file.name;
  replace_file(target, [&](int fd) {
    std::vector<char> chunk(kChunkBytes);
    Sha256 hash;
    int64_t left = file.size;
    while (left > 0) {
      // The member may be longer than `file.size`, or claim to be.
      const auto wanted = std::min(left, static_cast<int64_t>(chunk.size()));
      const auto got =
          archive_read_data(archive.get(), chunk.data(), static_cast<size_t>(wanted));
      check(archive, static_cast<int>(got), path);
      if (got <= 0) {
        break;
      }
      left -= got;
      hash.update(chunk.data(), static_cast<size_t>(got));
      write_all(fd, chunk.data(), static_cast<size_t>(got), target);
      if (stop_signal() != 0) {
        throw DataError(
            "[fetch] stopped while unpacking; run the same command again to resume");
      }
    }
    const std::string digest = hash.hex_digest();
    if (digest != file.sha256) {
      fail_unpacking(
          path, "holds another " + file.name + ": SHA-256 " + digest + ", expected " +
                    file.sha256);
    }
  });
}

}  // namespace

void unpack(const std::string& path, const RemoteSet& set, const std::string& folder) {
  const Archive archive = open_archive(path);
  const std::string prefix = set.archive->folder + "/";
  std::vector<RemoteFile> missing = set.files;
  // Stops reading after the last file of the set.
  while (!missing.empty()) {
    archive_entry* entry = nullptr;
    const int code = archive_read_next_header(archive.get(), &entry);
    if (code == ARCHIVE_EOF) {
      fail_unpacking(path, "has no " + prefix + missing.front().name);
    }
    check(archive, code, path);
    const std::string name = file_name(entry);
    const auto file = std::find_if(
        missing.begin(), missing.end(),
        [&](const RemoteFile& one) { return name == prefix + one.name; });
    if (file == missing.end()) {
      continue;
    }
    write_member(archive, path, *file, folder);
    missing.erase(file);
  }
}

}  // namespace tandem::app
