#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tandem/base/deadline.h"

namespace tandem {

/// Memory that this process shares with child processes that it forks later: the mapped
/// bytes of a file, or anonymous memory.
class SharedMemory {
 public:
  /// Allocates zeros. Throws std::bad_alloc if the memory cannot be mapped.
  explicit SharedMemory(size_t bytes);
  /// Maps the first `bytes` bytes of a file, which must be that long. Throws DataError
  /// with `path` if they cannot be mapped.
  SharedMemory(int fd, size_t bytes, const std::string& path);

  uint8_t* data() const {
    return data_.get();
  }
  /// Makes the memory read-only and returns it. The mapping ends when the last copy of
  /// the result is destroyed.
  std::shared_ptr<const uint8_t> freeze();

 private:
  std::shared_ptr<uint8_t> data_;
  size_t bytes_ = 0;
};

/// Work on untrusted files, in child processes that may crash.
struct ChildWork {
  // Number of files.
  int64_t count = 0;
  // Processes file `i` in a child process, and writes results to SharedMemory. Throws
  // an error of tandem if the file is invalid.
  std::function<void(int64_t i)> work;
  // Returns the path of file `i`, for errors.
  std::function<std::string(int64_t i)> path;
};

/// Calls `work` for each file, in one child process per usable CPU (usable_cpus()).
///
/// If `work` throws, or a child crashes or is killed, throws DataError with one line
/// after all children have ended. If this happens for several files, the error is that
/// of the first file. Also throws DataError if a child processes one file for longer
/// than `deadline.time()`, and StoppedError after a signal (stop_signal()).
void run_in_children(const ChildWork& work, const Deadline& deadline);

}  // namespace tandem
