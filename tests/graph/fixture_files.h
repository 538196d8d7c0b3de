#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>

#include "tandem/base/files.h"
#include "tests/places.h"
#include "tests/scratch.h"

namespace tandem {

inline std::string fixtures_dir() {
  return source_dir() + "/tests/graph/fixtures/";
}

/// Returns the unpacked content of a gzip file.
inline std::string unpacked(const std::string& path) {
  std::string bytes;
  std::string block(1 << 16, '\0');
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    throw std::runtime_error("no file " + path);
  }
  int got = 0;
  while ((got = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0) {
    bytes.append(block, 0, static_cast<size_t>(got));
  }
  if (gzclose(file) != Z_OK || got < 0) {
    throw std::runtime_error("the file " + path + " is damaged");
  }
  return bytes;
}

/// Returns the content of a file in tests/graph/fixtures, such as "net-2.6.0.pt2".
inline std::string fixture(const std::string& name) {
  return unpacked(fixtures_dir() + name + ".gz");
}

/// Unpacks a file in tests/graph/fixtures to the directory `to`. Returns the path of
/// the unpacked file.
inline std::string unpack_fixture(const Scratch& to, const std::string& name) {
  const std::string path = to / name.substr(name.rfind('/') + 1);
  replace_file(path, fixture(name));
  return path;
}

}  // namespace tandem
