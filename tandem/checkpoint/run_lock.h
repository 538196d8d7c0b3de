#pragma once

#include <string>

namespace tandem {

/// Keeps every other run out of a run's directory: two of them would remove each
/// other's unfinished checkpoints. Only rank 0 of a run takes it, on whichever host, so
/// that a run never meets itself.
///
/// It is a lock of the kernel's on DIRECTORY/run.lock, which says the process and the
/// host that hold it. It ends with the process, however that ends; the file is then
/// nobody's, and goes with the next lock's end. On NFS it holds between hosts. Where
/// the directory cannot be written, or its file system has no locks, there is none.
class RunLock {
 public:
  /// Waits up to two seconds for a process that is just ending. Throws ConfigError that
  /// names the process which writes there.
  [[nodiscard]] explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  bool take();

  std::string path_;
  int fd_ = -1;
};

/// Throws ConfigError where `directory` is a symbolic link or belongs to another user,
/// who could have a run write, or remove, what is not its own. One that is not there
/// yet is fine.
void check_own_directory(const std::string& directory);

}  // namespace tandem
