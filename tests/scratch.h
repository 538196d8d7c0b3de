#pragma once

#include <string>

#include "tandem/base/files.h"

namespace tandem {

/// A directory of a test's own; it goes away with all that is in it.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() {
    remove_all(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const {
    return path_;
  }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_ = make_private_directory();
};

}  // namespace tandem
