#pragma once

#include <cstdint>
#include <string>

namespace tandem::fuzz {

/// Builds a zip archive with uncompressed entries and without checksums. The class
/// follows the description of the format and does not use the library that the fuzzer
/// tests.
class ZipBytes {
 public:
  void add(const std::string& name, const std::string& content) {
    const size_t header = bytes_.size();
    const std::string sizes = number(content.size(), 4) + number(content.size(), 4) +
                              number(name.size(), 2) + number(0, 2);
    bytes_ += "PK\3\4" + std::string(14, '\0') + sizes + name + content;
    directory_ += "PK\1\2" + std::string(16, '\0') + sizes + std::string(10, '\0') +
                  number(header, 4) + name;
    ++entries_;
  }

  std::string finish() const {
    return bytes_ + directory_ + "PK\5\6" + std::string(4, '\0') + number(entries_, 2) +
           number(entries_, 2) + number(directory_.size(), 4) +
           number(bytes_.size(), 4) + number(0, 2);
  }

 private:
  static std::string number(size_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  }

  std::string bytes_;
  std::string directory_;
  size_t entries_ = 0;
};

}  // namespace tandem::fuzz
