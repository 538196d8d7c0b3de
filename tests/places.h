#pragma once

#include <string>
#include <vector>

namespace tandem {

/// The root of the repository and of its build, as absolute paths. One file knows them,
/// so that a compiler cache serves all other tests wherever the repository lies.
const std::string& source_dir();
const std::string& binary_dir();

/// A program of this build.
inline std::string program(const std::string& name = "tandem") {
  return binary_dir() + "/bin/" + name;
}

/// What tests of processes and launches run in a process of its own.
inline std::string helper() {
  return program("launch_helper");
}

/// Copies of programs of this build, in a folder below /tmp that every user can enter.
/// A checkout may be below a directory of mode 0700. Removed with the object.
class PublicPrograms {
 public:
  explicit PublicPrograms(const std::vector<std::string>& names);
  ~PublicPrograms();
  PublicPrograms(const PublicPrograms&) = delete;
  PublicPrograms& operator=(const PublicPrograms&) = delete;

  /// The path of a copy.
  std::string operator/(const std::string& name) const {
    return folder_ + "/" + name;
  }

 private:
  std::string folder_ = "/tmp/tandem-programs-XXXXXX";
};

}  // namespace tandem
