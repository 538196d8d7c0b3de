#include "tandem/data/idx.h"

#include <fmt/core.h>
#include <libdeflate.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/config/options/model_options.h"
#include "tandem/data/classes.h"
#include "tandem/data/data_memory.h"

namespace tandem {

namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMostBytes = int64_t{1} << 36;
// Size of the magic number, and of each dimension.
constexpr size_t kWordBytes = 4;

constexpr std::string_view kGzipMagic = "\x1f\x8b";

bool is_gzip(std::string_view bytes) {
  return bytes.substr(0, kGzipMagic.size()) == kGzipMagic;
}

// Returns the number of bytes to allocate at first for the content of a gzip file.
size_t first_room(std::string_view packed) {
  // A gzip file ends with its unpacked size, which may be wrong. So a size that is far
  // larger than the file is not used.
  constexpr size_t kMostRatio = 64;
  constexpr size_t kLeast = 64;
  uint32_t size = 0;
  if (packed.size() >= sizeof(size)) {
    std::memcpy(&size, packed.data() + packed.size() - sizeof(size), sizeof(size));
  }
  const bool is_plausible = size / kMostRatio <= packed.size();
  return std::max(kLeast, is_plausible ? size : packed.size());
}

// Unpacks a gzip file, which may consist of several members.
std::vector<uint8_t> unpack(std::string_view packed, const std::string& path) {
  const std::unique_ptr<
      libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>
      unpacker(libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (unpacker == nullptr) {
    throw std::bad_alloc();
  }
  std::vector<uint8_t> bytes;
  size_t size = 0;
  for (size_t room = first_room(packed); !packed.empty();) {
    if (!is_gzip(packed)) {
      throw DataError(fmt::format(
          "[data] '{}' is damaged: {} other bytes follow its gzip data; fetch it again",
          path, packed.size()));
    }
    check_data_memory("'" + path + "'", size + room);
    bytes.resize(size + room);
    size_t used = 0;
    size_t got = 0;
    const auto result = libdeflate_gzip_decompress_ex(
        unpacker.get(), packed.data(), packed.size(), bytes.data() + size, room, &used,
        &got);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
      room *= 2;
    } else if (result != LIBDEFLATE_SUCCESS) {
      throw DataError(fmt::format(
          "[data] '{}' is damaged: its gzip data are incomplete or wrong; fetch it "
          "again",
          path));
    } else {
      size += got;
      packed.remove_prefix(used);
    }
  }
  bytes.resize(size);
  bytes.shrink_to_fit();
  return bytes;
}

std::vector<int64_t> read_header(
    std::string_view bytes, const std::string& path, size_t num_dims) {
  const auto number_at = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  if (bytes.size() < kWordBytes) {
    throw DataError(
        fmt::format("[data] '{}' is too short for an IDX file; fetch it again", path));
  }
  if (number_at(0) != 0 || number_at(1) != 0 || number_at(2) != kUnsignedByte) {
    throw DataError(fmt::format(
        "[data] '{}' is not an IDX file of bytes (wrong magic number {} {} {}, "
        "expected 0 0 8); name another file or fetch it again",
        path, number_at(0), number_at(1), number_at(2)));
  }
  if (number_at(3) != num_dims) {
    throw DataError(fmt::format(
        "[data] '{}' has {} dimensions, expected {}; check that images and labels are "
        "not swapped",
        path, number_at(3), num_dims));
  }
  if (bytes.size() < kWordBytes * (1 + num_dims)) {
    throw DataError(
        fmt::format("[data] '{}' ends inside its header; fetch it again", path));
  }
  std::vector<int64_t> dims;
  for (size_t at = kWordBytes; at < kWordBytes * (1 + num_dims); at += kWordBytes) {
    dims.push_back(
        int64_t{number_at(at)} << 24 | int64_t{number_at(at + 1)} << 16 |
        int64_t{number_at(at + 2)} << 8 | number_at(at + 3));
  }
  return dims;
}

int64_t product(const std::string& path, const std::vector<int64_t>& dims) {
  int64_t total = 1;
  for (const int64_t dim : dims) {
    if (dim <= 0 || total > kMostBytes / dim) {
      const int64_t worst =
          dim <= 0 ? dim : *std::max_element(dims.begin(), dims.end());
      throw DataError(fmt::format(
          "[data] '{}' has a dimension of {} in its header ({} bytes, expected 1 byte "
          "to 64 GiB); fetch it again",
          path, worst, shape_text(dims)));
    }
    total *= dim;
  }
  return total;
}

// Returns the path of a file, gzip or plain; "" if there is none. The name may have a
// point before "idx", as in Kaggle's copy of MNIST, which also has folders with the
// names of the files.
std::string idx_file(const std::string& folder, const std::string& stem) {
  std::string with_point = stem;
  with_point.replace(stem.rfind("-idx"), 1, ".");
  std::error_code ignored;
  for (const auto& name : {stem, with_point}) {
    for (const char* ending : {".gz", ""}) {
      const std::string path = folder + "/" + name + ending;
      if (file_exists(path) && !std::filesystem::is_directory(path, ignored)) {
        return path;
      }
    }
  }
  return "";
}

bool has_idx_file(const std::string& folder) {
  for (const char* part : {"train", "t10k"}) {
    for (const char* end :
         {"-images-idx3-ubyte", "-images-idx4-ubyte", "-labels-idx1-ubyte"}) {
      if (!idx_file(folder, std::string(part) + end).empty()) {
        return true;
      }
    }
  }
  return false;
}

std::string find_idx(const std::string& folder, const std::string& stem) {
  if (const auto found = idx_file(folder, stem); !found.empty()) {
    return found;
  }
  throw DataError(fmt::format(
      "[data] '{}' has no {} or {}.gz; put it there, or set --data to another folder",
      folder, stem, stem));
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
    throw DataError(fmt::format(
        "[data] '{}' has {} images, but '{}' has {} labels; fetch both again",
        image_path, images.dims[0], label_path, labels.dims[0]));
  }
  Dataset split;
  split.name = folder;
  split.is_loadable = true;
  split.size = images.dims[0];
  split.inputs = samples_of(std::move(images));
  split.targets.bytes = std::move(labels.values);
  return split;
}

}  // namespace

IdxArray read_idx(const std::string& path, size_t num_dims) {
  return parse_idx(read_file(path), path, num_dims);
}

IdxArray parse_idx(std::string_view bytes, const std::string& path, size_t num_dims) {
  const bool is_packed = is_gzip(bytes);
  std::vector<uint8_t> unpacked;
  if (is_packed) {
    unpacked = unpack(bytes, path);
    bytes = {reinterpret_cast<const char*>(unpacked.data()), unpacked.size()};
  }
  IdxArray array;
  array.dims = read_header(bytes, path, num_dims);
  const auto total = static_cast<size_t>(product(path, array.dims));
  const size_t header = kWordBytes * (1 + num_dims);
  const size_t have = bytes.size() - header;
  if (have < total) {
    throw DataError(fmt::format(
        "[data] '{}' ends after {} of the {} bytes that its header declares; fetch it "
        "again",
        path, have, total));
  }
  if (have > total) {
    throw DataError(fmt::format(
        "[data] '{}' continues after the {} bytes that its header declares; fetch it "
        "again",
        path, total));
  }
  if (is_packed) {
    unpacked.erase(
        unpacked.begin(), unpacked.begin() + static_cast<std::ptrdiff_t>(header));
    array.values = std::move(unpacked);
  } else {
    check_data_memory("'" + path + "'", total);
    const auto* values = reinterpret_cast<const uint8_t*>(bytes.data() + header);
    array.values.assign(values, values + total);
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

std::string find_idx_folder(const std::string& path) {
  if (has_idx_file(path)) {
    return path;
  }
  std::string found;
  for (const char* name : {"/raw", "/MNIST/raw", "/FashionMNIST/raw", "/KMNIST/raw"}) {
    if (!has_idx_file(path + name)) {
      continue;
    }
    if (!found.empty()) {
      throw DataError(fmt::format(
          "[data] '{}' has the data sets '{}' and '{}', expected one; set --data to "
          "one of them",
          path, found, path + name));
    }
    found = path + name;
  }
  return found;
}

DatasetSplits load_idx_folder(const std::string& folder) {
  DatasetSplits splits{load_split(folder, "train"), load_split(folder, "t10k")};
  Dataset& train = splits.train;
  Dataset& test = splits.test;
  if (train.inputs.shape != test.inputs.shape) {
    throw DataError(fmt::format(
        "[data] '{}': training images are {}, test images {}, expected equal sizes; "
        "fetch the image files again",
        folder, shape_text(train.inputs.shape), shape_text(test.inputs.shape)));
  }
  count_classes(splits, kNoIgnoredClass);
  for (int64_t i = 0; i < train.num_classes; ++i) {
    train.class_names.push_back(std::to_string(i));
  }
  test.class_names = train.class_names;
  return splits;
}

}  // namespace tandem
