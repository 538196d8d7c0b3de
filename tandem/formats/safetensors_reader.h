#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/descriptor.h"
#include "tandem/core/arena.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

/// Place of a tensor in a safetensors file.
struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  // Range of the tensor's bytes, counted from the end of the header.
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// Header of a safetensors file.
struct SafetensorsHeader {
  // In the order of the header.
  std::vector<SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Metadata entry with the hash of a file's content (write_safetensors()).
constexpr const char* kSafetensorsHash = "sha256";

/// Throws DataError for a file whose hash is missing or wrong.
[[noreturn]] void fail_safetensors_hash(
    const std::string& path, const std::string& why);

/// Parses the JSON of a header. `data_bytes` is the number of bytes after the header,
/// `path` the name of the file in errors. Throws the DataErrors of read_safetensors().
SafetensorsHeader parse_safetensors_header(
    std::string_view json, uint64_t data_bytes, const std::string& path);

/// Returns the hash of a content (write_safetensors()). `tensor` returns the values of
/// an entry. It is called once for each entry, in the order of the names.
std::string safetensors_hash(
    const SafetensorsHeader& header,
    const std::function<at::Tensor(const SafetensorsEntry&)>& tensor);

/// An open safetensors file, whose tensors are read when they are needed. Thread-safe
/// after the constructor.
class SafetensorsReader {
 public:
  /// Reads the header. `path` is the name of the file in errors. Throws the DataErrors
  /// of read_safetensors(), except for a wrong hash.
  SafetensorsReader(Descriptor file, std::string path);
  /// As above, for the bytes of a file, which must outlive the object.
  SafetensorsReader(std::string_view bytes, std::string path);

  const SafetensorsHeader& header() const {
    return header_;
  }
  /// Returns the JSON of the header, and the number of bytes after the header.
  const std::string& json() const {
    return json_;
  }
  uint64_t data_bytes() const {
    return data_bytes_;
  }
  const std::string& path() const {
    return path_;
  }

  /// Returns a tensor of the file, which owns its memory. Throws DataError if it cannot
  /// be read.
  at::Tensor read(const SafetensorsEntry& entry) const;

  /// Reads the whole file and checks its hash, if it has one. Returns the content, or,
  /// unless `keeps_tensors`, only its metadata. At most one dropped tensor is in
  /// memory.
  SafetensorsFile read_all(bool keeps_tensors = true) const;

 private:
  // Copies bytes of the file.
  using Read = std::function<void(uint64_t offset, void* to, size_t size)>;

  void read_header(uint64_t size);

  std::string path_;
  Read read_;
  std::string json_;
  uint64_t data_bytes_ = 0;
  SafetensorsHeader header_;
};

}  // namespace tandem
