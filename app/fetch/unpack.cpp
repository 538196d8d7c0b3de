#include "app/fetch/unpack.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <set>

#include "app/fetch/tar.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/base/signals.h"

namespace tandem::app {

namespace {

constexpr size_t kReadBytes = size_t{1} << 18;

[[noreturn]] void fail_unpacking(const std::string& archive, const std::string& what) {
  throw DataError("[fetch] '" + archive + "' " + what);
}

// The bytes that a gzip file holds, one after the other.
class GzipSource {
 public:
  explicit GzipSource(const std::string& path)
      : path_(path), file_(gzopen(path.c_str(), "rbe"), &gzclose) {
    if (file_ == nullptr) {
      fail_unpacking(path_, "cannot be read");
    }
    gzbuffer(file_.get(), kReadBytes);
  }

  // `size` is less than 2 GiB.
  size_t read(char* data, size_t size) {
    const int got = gzread(file_.get(), data, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* reason = gzerror(file_.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      fail_unpacking(
          path_, "is no whole gzip file: " + std::string(reason) + "; fetch it again");
    }
    return static_cast<size_t>(got);
  }

 private:
  const std::string path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose)> file_;
};

void write_member(
    TarReader& tar, const std::string& archive, const RemoteFile& file,
    const std::string& folder) {
  const std::string path = folder + "/" + file.name;
  replace_file(path, [&](int fd) {
    std::string chunk(kReadBytes, '\0');
    Sha256 hash;
    while (const size_t got = tar.read(chunk.data(), chunk.size())) {
      hash.update(chunk.data(), got);
      write_all(fd, chunk.data(), got, path);
      if (stop_signal() != 0) {
        throw DataError("[fetch] stopped while unpacking; the same command goes on");
      }
    }
    const std::string digest = hash.hex_digest();
    if (digest != file.sha256) {
      fail_unpacking(
          archive, "holds another " + file.name + ": SHA-256 " + digest +
                       ", expected " + file.sha256 + "; fetch it again");
    }
  });
}

}  // namespace

void unpack(const std::string& path, const RemoteSet& set, const std::string& folder) {
  GzipSource source(path);
  TarReader tar([&](char* data, size_t size) { return source.read(data, size); }, path);
  std::set<std::string> done;
  while (const auto member = tar.next()) {
    const auto file =
        std::find_if(set.files.begin(), set.files.end(), [&](const RemoteFile& one) {
          return member->name == set.archive->folder + "/" + one.name;
        });
    if (file == set.files.end()) {
      continue;
    }
    if (member->size != file->size) {
      fail_unpacking(
          path, "holds " + file->name + " of " + std::to_string(member->size) +
                    " bytes, expected " + std::to_string(file->size) +
                    "; fetch it again");
    }
    if (!done.insert(file->name).second) {
      fail_unpacking(path, "holds " + file->name + " twice; fetch it again");
    }
    write_member(tar, path, *file, folder);
  }
  for (const auto& file : set.files) {
    if (done.count(file.name) == 0) {
      fail_unpacking(
          path, "has no " + set.archive->folder + "/" + file.name + "; fetch it again");
    }
  }
}

}  // namespace tandem::app
