#include "tandem/data/idx.h"

#include <libdeflate.h>
#include <unistd.h>
// zlib accepts const input only with this macro.
#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/data_memory.h"

namespace tandem {

namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMostBytes = int64_t{1} << 36;
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kMostChunk = size_t{1} << 30;

[[noreturn]] void fail_idx(const std::string& path, const std::string& what) {
  throw DataError("[data] '" + path + "' " + what);
}

constexpr std::string_view kGzipMagic = "\x1f\x8b";

// Reads the bytes of a gzip or plain file from start to end.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, std::string name)
      : rest_(bytes),
        name_(std::move(name)),
        packed_(bytes.substr(0, kGzipMagic.size()) == kGzipMagic) {
    // With 16, zlib requires a gzip header and verifies the checksum.
    if (packed_ && inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~ByteReader() {
    if (packed_) {
      inflateEnd(&stream_);
    }
  }
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  // Returns an upper limit for the number of bytes that remain. Deflate expands a byte
  // to at most 1032 bytes.
  size_t most_bytes() const {
    constexpr size_t kMostInflated = 1040;
    return packed_ ? kMostInflated * (rest_.size() + kGzipMagic.size()) : rest_.size();
  }

  // Reads up to `size` bytes, which must be less than 4 GiB. Returns the number of
  // bytes, which is less than `size` only at the end.
  size_t read(uint8_t* data, size_t size) {
    return packed_ ? unpack(data, size) : copy(data, size);
  }

 private:
  size_t copy(uint8_t* data, size_t size) {
    const size_t got = rest_.copy(reinterpret_cast<char*>(data), size);
    rest_.remove_prefix(got);
    return got;
  }

  size_t unpack(uint8_t* data, size_t size) {
    stream_.next_out = data;
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out > 0 && !ended_) {
      inflate_some();
    }
    return size - stream_.avail_out;
  }

  void inflate_some() {
    const size_t given = std::min(rest_.size(), kMostChunk);
    stream_.next_in = reinterpret_cast<const Bytef*>(rest_.data());
    stream_.avail_in = static_cast<uInt>(given);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    rest_.remove_prefix(given - stream_.avail_in);
    if (code == Z_STREAM_END) {
      next_member();
    } else if (code != Z_OK) {
      const std::string reason = code == Z_BUF_ERROR      ? "it ends in the middle"
                                 : stream_.msg != nullptr ? stream_.msg
                                                          : zError(code);
      fail_idx(name_, "is damaged: " + reason + "; fetch it again");
    }
  }

  // Starts the next gzip member. Throws DataError if other bytes follow a member.
  void next_member() {
    ended_ = rest_.empty();
    if (!ended_ && rest_.substr(0, kGzipMagic.size()) != kGzipMagic) {
      fail_idx(
          name_, "is damaged: " + std::to_string(rest_.size()) +
                     " other bytes follow its gzip data; fetch it again");
    }
    inflateReset(&stream_);
  }

  std::string_view rest_;
  const std::string name_;
  const bool packed_;
  bool ended_ = false;
  z_stream stream_{};
};

std::string numbers_text(
    const std::vector<int64_t>& numbers, const std::string& between) {
  std::vector<std::string> texts;
  for (const int64_t number : numbers) {
    texts.push_back(std::to_string(number));
  }
  return join(texts, between);
}

std::vector<int64_t> read_header(
    ByteReader& reader, const std::string& path, size_t num_dims) {
  uint8_t magic[4];
  if (reader.read(magic, sizeof(magic)) < sizeof(magic)) {
    fail_idx(path, "is too short for an IDX file; fetch it again");
  }
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte) {
    fail_idx(
        path, "is not an IDX file of bytes (wrong magic number " +
                  numbers_text({magic[0], magic[1], magic[2]}, " ") +
                  ", expected 0 0 8); name another file or fetch it again");
  }
  if (magic[3] != num_dims) {
    fail_idx(
        path, "has " + std::to_string(magic[3]) + " dimensions, expected " +
                  std::to_string(num_dims) +
                  "; check that images and labels are not swapped");
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < num_dims; ++i) {
    uint8_t bytes[4];
    if (reader.read(bytes, sizeof(bytes)) < sizeof(bytes)) {
      fail_idx(path, "ends inside its header; fetch it again");
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
      const int64_t worst =
          dim <= 0 ? dim : *std::max_element(dims.begin(), dims.end());
      fail_idx(
          path, "has a dimension of " + std::to_string(worst) + " in its header (" +
                    numbers_text(dims, "x") +
                    " bytes, expected 1 byte to 64 GiB); fetch it again");
    }
    total *= dim;
  }
  return total;
}

// Unpacks a gzip file of one member in one call, three times as fast as zlib. Returns
// nullopt for any other file; zlib then reads the file and reports errors.
std::optional<std::vector<uint8_t>> unpack_at_once(
    std::string_view bytes, size_t header, size_t total) {
  // Largest ratio of unpacked to packed size. A gzip file ends with its unpacked size,
  // which may be wrong, so memory is not allocated for a larger ratio.
  constexpr size_t kMostPacked = 64;
  uint32_t size = 0;
  if (bytes.substr(0, kGzipMagic.size()) != kGzipMagic || bytes.size() < sizeof(size)) {
    return std::nullopt;
  }
  const auto* end = reinterpret_cast<const uint8_t*>(bytes.data() + bytes.size());
  size = uint32_t{end[-1]} << 24 | uint32_t{end[-2]} << 16 | uint32_t{end[-3]} << 8 |
         end[-4];
  if (size != header + total || size / kMostPacked > bytes.size()) {
    return std::nullopt;
  }
  const std::unique_ptr<
      libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>
      unpacker(libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (unpacker == nullptr) {
    throw std::bad_alloc();
  }
  std::vector<uint8_t> values(size);
  size_t used = 0;
  const auto result = libdeflate_gzip_decompress_ex(
      unpacker.get(), bytes.data(), bytes.size(), values.data(), size, &used, nullptr);
  if (result != LIBDEFLATE_SUCCESS || used != bytes.size()) {
    return std::nullopt;
  }
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(header));
  return values;
}

// Returns the path of a file, gzip or plain; "" if there is none.
std::string idx_file(const std::string& folder, const std::string& stem) {
  for (const char* ending : {".gz", ""}) {
    const std::string path = folder + "/" + stem + ending;
    if (file_exists(path)) {
      return path;
    }
  }
  return "";
}

std::string find_idx(const std::string& folder, const std::string& stem) {
  if (const auto found = idx_file(folder, stem); !found.empty()) {
    return found;
  }
  throw DataError(
      "[data] '" + folder + "' has no " + stem + " or " + stem +
      ".gz; put it there, or set --data to another folder");
}

Samples samples_of(IdxArray images) {
  std::vector<int64_t> shape(images.dims.begin() + 1, images.dims.end());
  if (shape.size() == 2) {
    shape.insert(shape.begin(), 1);
  }
  return {ElementType::uint8, shape, std::move(images.values)};
}

Dataset load_split(const std::string& folder, const std::string& prefix) {
  const auto color_path = idx_file(folder, prefix + "-images-idx4-ubyte");
  const auto image_path =
      color_path.empty() ? find_idx(folder, prefix + "-images-idx3-ubyte") : color_path;
  const auto label_path = find_idx(folder, prefix + "-labels-idx1-ubyte");
  auto images = read_idx(image_path, color_path.empty() ? 3 : 4);
  auto labels = read_idx(label_path, 1);
  if (images.dims[0] != labels.dims[0]) {
    throw DataError(
        "[data] '" + image_path + "' has " + std::to_string(images.dims[0]) +
        " images, but '" + label_path + "' has " + std::to_string(labels.dims[0]) +
        " labels; fetch both again");
  }
  Dataset split;
  split.name = folder;
  split.is_loadable = true;
  split.size = images.dims[0];
  split.num_classes = 1 + *std::max_element(labels.values.begin(), labels.values.end());
  split.inputs = samples_of(std::move(images));
  split.targets.bytes = std::move(labels.values);
  return split;
}

// Throws DataError if a test label is greater than every training label. Otherwise a
// damaged byte in a label file would look like a class without training samples.
void check_labels(
    const std::string& folder, const Dataset& train, const Dataset& test) {
  if (test.num_classes > train.num_classes) {
    throw DataError(
        "[data] '" + folder + "': a test label is " +
        std::to_string(test.num_classes - 1) + ", expected at most " +
        std::to_string(train.num_classes - 1) +
        " as in the training labels; fetch the label files again");
  }
}

}  // namespace

IdxArray read_idx(const std::string& path, size_t num_dims) {
  return parse_idx(read_file(path), path, num_dims);
}

IdxArray parse_idx(std::string_view bytes, const std::string& path, size_t num_dims) {
  ByteReader reader(bytes, path);
  IdxArray array;
  array.dims = read_header(reader, path, num_dims);
  const auto total = static_cast<size_t>(product(path, array.dims));
  // If a file cannot contain as many bytes as its header declares, no memory is
  // allocated for them, and reading ends with an error.
  const bool may_hold = total <= reader.most_bytes();
  if (may_hold) {
    check_data_memory("'" + path + "'", total);
  }
  const size_t header = sizeof(uint32_t) * (1 + num_dims);
  if (auto values = unpack_at_once(bytes, header, total)) {
    array.values = std::move(*values);
    return array;
  }
  if (may_hold) {
    array.values.reserve(total);
  }
  while (array.values.size() < total) {
    const size_t have = array.values.size();
    const size_t wanted =
        std::min({total - have, std::max(kChunkBytes, have), kMostChunk});
    array.values.resize(have + wanted);
    const size_t got = reader.read(array.values.data() + have, wanted);
    if (got < wanted) {
      fail_idx(
          path, "ends after " + std::to_string(have + got) + " of the " +
                    std::to_string(total) +
                    " bytes that its header declares; fetch it again");
    }
  }
  uint8_t extra = 0;
  if (reader.read(&extra, 1) != 0) {
    fail_idx(
        path, "continues after the " + std::to_string(total) +
                  " bytes that its header declares; fetch it again");
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
    // 'T' writes without compression. Level 1 is noticeably faster than other levels.
    gzFile file = gzdopen(dup(fd), compress ? "wb1" : "wbT");
    TANDEM_CHECK(file != nullptr, "gzdopen failed");
    const bool written =
        gzwrite(file, header.data(), static_cast<unsigned>(header.size())) > 0 &&
        gzwrite(file, array.values.data(), static_cast<unsigned>(array.values.size())) >
            0;
    const int reason = errno;
    if (gzclose(file) != Z_OK || !written) {
      errno = reason;
      fail_on_file("write", path);
    }
  });
}

Dataset load_images(const std::string& path) {
  auto images = read_idx(path, 3);
  Dataset data;
  data.name = path;
  data.size = images.dims[0];
  data.inputs = samples_of(std::move(images));
  return data;
}

DatasetSplits load_idx_folder(const std::string& folder) {
  DatasetSplits splits{load_split(folder, "train"), load_split(folder, "t10k")};
  Dataset& train = splits.train;
  Dataset& test = splits.test;
  if (train.inputs.shape != test.inputs.shape) {
    throw DataError(
        "[data] '" + folder + "': training images are " +
        shape_text(train.inputs.shape) + ", test images " +
        shape_text(test.inputs.shape) +
        ", expected equal sizes; fetch the image files again");
  }
  check_labels(folder, train, test);
  test.num_classes = train.num_classes;
  for (int64_t i = 0; i < train.num_classes; ++i) {
    train.class_names.push_back(std::to_string(i));
  }
  test.class_names = train.class_names;
  return splits;
}

}  // namespace tandem
