#include "tandem/data/idx.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMostBytes = int64_t{1} << 36;
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kMostChunk = size_t{1} << 30;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DataError("[data] '" + path + "' " + what);
}

// Reads gzip and plain files alike.
class ByteReader {
 public:
  explicit ByteReader(const std::string& path) : path_(path) {
    errno = 0;
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) {
      fail(path, std::string("cannot be opened: ") + std::strerror(errno));
    }
    gzbuffer(file_, 1 << 17);
  }
  ~ByteReader() {
    gzclose(file_);
  }
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  size_t read(void* data, size_t size) {
    const int got = gzread(file_, data, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* message = gzerror(file_, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      const std::string reason = code == Z_ERRNO       ? std::strerror(errno)
                                 : code == Z_BUF_ERROR ? "it ends in the middle"
                                                       : message;
      fail(path_, "is damaged: " + reason + "; fetch it again");
    }
    return static_cast<size_t>(got);
  }

 private:
  std::string path_;
  gzFile file_;
};

std::vector<int64_t> read_header(
    ByteReader& reader, const std::string& path, size_t num_dims) {
  uint8_t magic[4];
  if (reader.read(magic, sizeof(magic)) < sizeof(magic)) {
    fail(path, "is too short for an IDX file; fetch it again");
  }
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte) {
    fail(path, "is not an IDX file of bytes (wrong magic number)");
  }
  if (magic[3] != num_dims) {
    fail(
        path, "has " + std::to_string(magic[3]) + " dimensions, expected " +
                  std::to_string(num_dims) + "; are images and labels swapped?");
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < num_dims; ++i) {
    uint8_t bytes[4];
    if (reader.read(bytes, sizeof(bytes)) < sizeof(bytes)) {
      fail(path, "ends inside its header; fetch it again");
    }
    dims.push_back(
        int64_t{bytes[0]} << 24 | int64_t{bytes[1]} << 16 | int64_t{bytes[2]} << 8 |
        bytes[3]);
  }
  return dims;
}

int64_t product(const std::string& path, const std::vector<int64_t>& dims) {
  int64_t total = 1;
  for (const int64_t dim : dims) {
    if (dim <= 0 || total > kMostBytes / dim) {
      fail(
          path, "has a dimension of " + std::to_string(dim) +
                    " in its header; fetch it again");
    }
    total *= dim;
  }
  return total;
}

}  // namespace

IdxArray read_idx(const std::string& path, size_t num_dims) {
  ByteReader reader(path);
  IdxArray array;
  array.dims = read_header(reader, path, num_dims);
  const auto total = static_cast<size_t>(product(path, array.dims));
  while (array.values.size() < total) {
    const size_t have = array.values.size();
    const size_t wanted =
        std::min({total - have, std::max(kChunkBytes, have), kMostChunk});
    array.values.resize(have + wanted);
    const size_t got = reader.read(array.values.data() + have, wanted);
    if (got < wanted) {
      fail(
          path, "ends after " + std::to_string(have + got) + " of the " +
                    std::to_string(total) +
                    " bytes that its header promises; fetch it again");
    }
  }
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) {
    fail(
        path, "goes on after the " + std::to_string(total) +
                  " bytes that its header promises; fetch it again");
  }
  return array;
}

void write_idx(const std::string& path, const IdxArray& array) {
  std::vector<uint8_t> header = {
      0, 0, kUnsignedByte, static_cast<uint8_t>(array.dims.size())};
  for (const int64_t dim : array.dims) {
    for (const int shift : {24, 16, 8, 0}) {
      header.push_back(static_cast<uint8_t>(dim >> shift));
    }
  }
  const bool compress = path.size() > 3 && path.substr(path.size() - 3) == ".gz";
  replace_file(path, [&](int fd) {
    // 'T' writes through without compressing; level 1 is fast enough to notice.
    gzFile file = gzdopen(dup(fd), compress ? "wb1" : "wbT");
    TANDEM_CHECK(file != nullptr, "gzdopen failed");
    const bool written =
        gzwrite(file, header.data(), static_cast<unsigned>(header.size())) > 0 &&
        gzwrite(file, array.values.data(), static_cast<unsigned>(array.values.size())) >
            0;
    const int reason = errno;
    if (gzclose(file) != Z_OK || !written) {
      fail(path, std::string("cannot be written: ") + std::strerror(reason));
    }
  });
}

}  // namespace tandem
