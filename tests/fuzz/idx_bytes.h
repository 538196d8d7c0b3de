#pragma once

#include <string>

#include "tandem/data/idx.h"

namespace tandem::fuzz {

/// Returns a plain IDX file of the array, written from the description of the format
/// and not by the library.
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
