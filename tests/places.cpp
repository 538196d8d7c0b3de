#include "tests/places.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace tandem {

const std::string& source_dir() {
  static const std::string path = TANDEM_SOURCE_DIR;
  return path;
}

const std::string& binary_dir() {
  static const std::string path = TANDEM_BINARY_DIR;
  return path;
}

PublicPrograms::PublicPrograms(const std::vector<std::string>& names) {
  if (mkdtemp(folder_.data()) == nullptr || chmod(folder_.c_str(), 0755) != 0) {
    throw std::runtime_error("cannot make " + folder_);
  }
  for (const auto& name : names) {
    std::filesystem::copy_file(program(name), *this / name);
    chmod((*this / name).c_str(), 0755);
  }
}

PublicPrograms::~PublicPrograms() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tandem
