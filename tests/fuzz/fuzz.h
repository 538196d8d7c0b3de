#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"

namespace tandem::fuzz {

/// Aborts the program if `holds` is false. The fuzzer reports the abort as a finding.
inline void expect(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "not so: %s\n", what);
    std::abort();
  }
}

/// Returns true if `act` throws nothing, and false if it throws an error of tandem with
/// one line. Any other exception is a finding; so is InternalError.
template <typename Act>
bool accepts(Act act) {
  try {
    act();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    expect(text.find('\n') == std::string::npos, "an error is one line");
    expect(!text.empty() && text[0] == '[', "an error begins with its part");
    return false;
  }
}

/// A file in memory, for functions that read a path.
class MemoryFile {
 public:
  void write(const std::string& content) const {
    expect(ftruncate(fd_, 0) == 0, "the file is emptied");
    const auto size = static_cast<ssize_t>(content.size());
    expect(pwrite(fd_, content.data(), content.size(), 0) == size, "it is filled");
  }
  std::string path() const {
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  // Descriptor of the file, which exists until the program ends.
  const int fd_ = memfd_create("fuzz", MFD_CLOEXEC);
};

}  // namespace tandem::fuzz
