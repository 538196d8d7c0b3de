#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Returns the absolute path of the repository's root. Only places.cpp contains the
/// path, so that a compiler cache can share all other objects between checkouts.
const std::string& source_dir();

/// Returns the absolute path of the build folder.
const std::string& binary_dir();

/// Returns the path of a program of this build.
inline std::string program(const std::string& name = "tandem") {
  return binary_dir() + "/bin/" + name;
}

/// Returns the path of the program that tests of processes and of the launcher start.
inline std::string helper() {
  return program("launch_helper");
}

/// Copies of programs of this build, in a folder below /tmp that every user can enter.
/// (A checkout may be below a directory of mode 0700.) The destructor removes them.
class PublicPrograms {
 public:
  explicit PublicPrograms(const std::vector<std::string>& names);
  ~PublicPrograms();
  PublicPrograms(const PublicPrograms&) = delete;
  PublicPrograms& operator=(const PublicPrograms&) = delete;

  /// Returns the path of the copy of a program.
  std::string operator/(const std::string& name) const {
    return folder_ + "/" + name;
  }

 private:
  std::string folder_ = "/tmp/tandem-programs-XXXXXX";
};

}  // namespace tandem
