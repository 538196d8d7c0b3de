#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Faults of a file operation of a process.
enum class FaultKind {
  // No fault; operations are counted.
  none,
  // The operation fails and changes nothing.
  fail,
  // From this operation on, all that need space fail, as on a full disk.
  full,
  // The process is killed after the operation.
  die,
  // The process is killed during the operation: half of a write is done, other
  // operations not at all.
  tear,
  // The operation waits for release(), 20 seconds at most.
  hold,
};

/// Description of a fault. The library of this header comes before libc, so it sees
/// every call of open (to write), write, ftruncate, fsync, fdatasync, rename, unlink,
/// rmdir, mkdir and symlink. If it is linked into a test, a call arms it; under
/// LD_PRELOAD, TANDEM_FILE_FAULT = "KIND OPERATION ERRNO FOLDER", where KIND is a
/// number.
struct FileFault {
  FaultKind kind = FaultKind::none;
  // Number of the operation, from 1, among those on this folder and below it.
  int64_t operation = 0;
  int error = 0;
  std::string below;
  // Folder whose operations are not counted.
  std::string but_not_below;
  // renameat2() cannot exchange files, as on network file systems.
  bool no_exchange = false;
};

/// Arms the fault in this process. Call it only while no other thread uses files.
void arm(const FileFault& fault);

/// Returns the number of operations since then.
int64_t file_operations();

/// Returns call and path of the failed operation; "" for `full`.
std::string faulty_operation();

/// Returns whether an operation is held, and lets it continue. Thread-safe.
bool is_holding();
void release();

/// Exit code of a process that a fault killed.
constexpr int kFaultExit = 99;

}  // namespace tandem
