#pragma once

#include <string>

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

}  // namespace tandem
