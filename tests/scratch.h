#pragma once

#include <string>

#include "tandem/base/files.h"

namespace tandem {

/// A private directory for a test. The destructor removes it with its contents.
class Scratch {
 public:
  Scratch() : path_(make_private_directory()) {}
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
  std::string path_;
};

}  // namespace tandem
