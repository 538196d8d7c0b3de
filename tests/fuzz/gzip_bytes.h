#pragma once

#include <zlib.h>

#include <algorithm>
#include <string>

#include "tandem/base/files.h"
#include "tests/fuzz/fuzz.h"

namespace tandem::fuzz {

inline const MemoryFile kGzipFile;

/// Unpacks a gzip file with zlib. Returns at most `most` bytes. Sets `good` to true if
/// zlib reported no error, otherwise to false.
inline std::string unpacked(const std::string& packed, size_t most, bool& good) {
  kGzipFile.write(packed);
  std::string plain(most, '\0');
  gzFile file = gzopen(kGzipFile.path().c_str(), "rb");
  const int got = gzread(file, plain.data(), static_cast<unsigned>(most));
  good = gzclose(file) == Z_OK && got >= 0;
  plain.resize(static_cast<size_t>(std::max(got, 0)));
  return plain;
}

inline std::string packed(const std::string& plain) {
  kGzipFile.write("");
  gzFile file = gzopen(kGzipFile.path().c_str(), "wb1");
  gzwrite(file, plain.data(), static_cast<unsigned>(plain.size()));
  gzclose(file);
  return read_file(kGzipFile.path());
}

}  // namespace tandem::fuzz
