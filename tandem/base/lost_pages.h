#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <string>

namespace tandem {

/// Names the file of a mapping while the object exists, so that an access to a page
/// that the file has lost ends the process with an error. A file loses pages if another
/// process shortens it, or if its disk fails. The kernel then sends SIGBUS, which by
/// default kills the process without a line.
///
/// The error is one line with the path and the size that the file had. The process
/// prints it, or calls the action of on_lost_page(), and exits with code 1. Other
/// reasons for SIGBUS have the effect that they had before the first object was made.
/// If there are more than 256 objects, the error of the others has no path.
/// Thread-safe.
class MappedName {
 public:
  /// `begin` and `size` are the mapped range, `path` is the name of the file in errors.
  MappedName(const void* begin, size_t size, const std::string& path);
  ~MappedName();
  MappedName(const MappedName&) = delete;
  MappedName& operator=(const MappedName&) = delete;

 private:
  // Index of the mapping in the table of the signal handler; -1: the table was full.
  int slot_ = -1;
};

/// Sets the action that replaces printing the error. A signal handler calls it in the
/// thread that accessed the page. Call this function while there are no other threads.
void on_lost_page(std::function<void(const std::exception& error)> action);

}  // namespace tandem
