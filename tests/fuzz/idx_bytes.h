#pragma once

#include <string>

#include "tandem/data/idx.h"

namespace tandem::fuzz {

/// Returns the bytes of an uncompressed IDX file with the array. The function follows
/// the description of the format and does not use the library that the fuzzer tests.
inline std::string idx_bytes(const IdxArray& array) {
  std::string bytes("\0\0\x08", 3);
  bytes += static_cast<char>(array.dims.size());
  for (const int64_t dim : array.dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes += static_cast<char>(dim >> shift);
    }
  }
  return bytes.append(array.values.begin(), array.values.end());
}

}  // namespace tandem::fuzz
