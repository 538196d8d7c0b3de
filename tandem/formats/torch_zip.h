#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

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

/// Maximum number of dimensions of a tensor in a file.
constexpr size_t kMostDims = 64;

/// Returns whether every element of a strided tensor is in a storage of `storage_numel`
/// elements. Sizes, strides and the offset count elements. Also returns false for
/// negative numbers, for more than kMostDims dimensions, and if the number of elements
/// overflows 64 bits.
bool is_inside(
    int64_t storage_numel, int64_t offset, const std::vector<int64_t>& sizes,
    const std::vector<int64_t>& strides);

}  // namespace tandem
