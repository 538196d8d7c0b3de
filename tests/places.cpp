#include "tests/places.h"

namespace tandem {

const std::string& source_dir() {
  static const std::string path = TANDEM_SOURCE_DIR;
  return path;
}

const std::string& binary_dir() {
  static const std::string path = TANDEM_BINARY_DIR;
  return path;
}

}  // namespace tandem
