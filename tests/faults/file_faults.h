#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// Kinds of faults in the file operations of a process.
enum class FaultKind {
  // No fault; operations are only counted.
  none,
  // The operation fails and changes nothing.
  fail,
  // This operation and all later operations fail if they need disk space, as on a full
  // disk.
  full,
  // The process exits with kFaultExit after the operation.
  die,
  // The process exits with kFaultExit during the operation. Half of a write is done;
  // other operations have no effect.
  tear,
  // The operation waits until release() is called, for at most 20 seconds.
  hold,
};

/// A fault in the file operations of a process. The library of this header replaces
/// these functions of libc: write, ftruncate, fsync, fdatasync, rename, renameat2,
/// unlink, unlinkat, remove, rmdir, mkdir and symlink. It also replaces open and
/// open64, which count only if they open a file for writing. In a test that links the
/// library, arm() sets the fault. If LD_PRELOAD loads the library, the environment
/// variable TANDEM_FILE_FAULT sets the fault, as "KIND OPERATION ERRNO FOLDER". KIND is
/// the number of a FaultKind. With the variable TANDEM_FAULT_RANK, only operations of
/// the process of that rank count.
struct FileFault {
  FaultKind kind = FaultKind::none;
  // Number of the operation with the fault, from 1. Only operations in the folder
  // `below` and its subfolders are counted.
  int64_t operation = 0;
  int error = 0;
  std::string below;
  // Folder whose operations are not counted.
  std::string but_not_below;
  // True if renameat2(), which exchanges files, always fails, as on network file
  // systems.
  bool no_exchange = false;
};

/// Sets the fault of this process. Call this function only while no other thread uses
/// files.
void arm(const FileFault& fault);

/// Returns the number of counted operations since arm().
int64_t file_operations();

/// Returns a character for each of the first 999 counted operations: 'w' for a write,
/// 'r' for another operation that needs disk space, 'o' for other operations.
std::string operation_kinds();

/// Returns the call and the path of each counted operation since arm(), such as "write
/// /tmp/x". The path of a renamed file is the new one. Thread-safe.
std::vector<std::string> file_operation_log();

/// Returns the number of counted operations before the first exchange that failed
/// because of FileFault::no_exchange; -1 if none failed.
int64_t operations_before_exchange();

/// Returns the call and the path of the operation with the fault. Returns "" for
/// FaultKind::full, or if no operation had the fault.
std::string faulty_operation();

/// Functions for FaultKind::hold: is_holding() returns whether the operation is
/// waiting, and release() lets it continue. Thread-safe.
bool is_holding();
void release();

/// Exit code of a process that ended because of a fault.
constexpr int kFaultExit = 99;

}  // namespace tandem
