#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/npy.h"

namespace tandem {

/// An element type that .npy files can have.
struct NpyKind {
  // Type character and number of bytes, as in NumPy's dtype.str without the byte order.
  std::string_view code;
  size_t bytes;
  // Type after reading.
  ElementType type;
  // Converts `count` elements; null if the bytes need no conversion.
  void (*convert)(const uint8_t* from, size_t count, uint8_t* to);
};

/// Header of a .npy file.
struct NpyHeader {
  const NpyKind* kind = nullptr;
  std::vector<int64_t> shape;
  size_t num_elements = 0;
  // Start of the elements in the file, in bytes.
  size_t data_offset = 0;

  /// Returns the number of bytes of the elements in memory.
  size_t memory_bytes() const {
    return num_elements * size_of(kind->type);
  }
  bool is_bool() const {
    return kind->code == "b1";
  }
};

/// Reads the next bytes of a file. Returns fewer than `size` bytes only at the end.
using ReadBytes = std::function<size_t(uint8_t* to, size_t size)>;

/// Throws DataError "[data] LABEL PROBLEM".
[[noreturn]] void fail_npy(const std::string& label, const std::string& problem);

/// Throws DataError "[data] LABEL PROBLEM", with advice to save the file again.
[[noreturn]] void fail_damaged_npy(
    const std::string& label, const std::string& problem);

/// Reads the header of a .npy file of `file_bytes` bytes. The next bytes of `read` are
/// then the elements. `label` is the name of the file in errors, with quotes. Uses a
/// small multiple of 64 KiB of memory at most. Throws the DataErrors of read_npy(),
/// also if `file_bytes` does not match the header.
NpyHeader read_npy_header(
    const ReadBytes& read, uint64_t file_bytes, const std::string& label);

/// Reads the elements after the header into memory, and converts them. Throws DataError
/// if `read` ends too early.
NpyArray read_npy_elements(
    const NpyHeader& header, const ReadBytes& read, const std::string& label);

/// Returns the header of a .npy file, padded to a multiple of 64 bytes.
std::string npy_header(ElementType type, const std::vector<int64_t>& shape);

}  // namespace tandem
