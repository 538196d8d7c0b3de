#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// How one of a process's file operations goes wrong.
enum class FaultKind {
  // Nothing does; operations are counted.
  none,
  // It fails, and changes nothing.
  fail,
  // From it on all that needs room fails, as on a full disk.
  full,
  // The process dies right after it.
  die,
  // The process dies in it: of a write half is done, of anything else nothing.
  tear,
  // It waits until release(), 20 seconds at most.
  hold,
};

/// Which. The library beside this header stands before libc: open (to write), write,
/// ftruncate, fsync, fdatasync, rename, unlink, rmdir, mkdir and symlink go through it,
/// whoever calls them. Linked into a test it is armed by a call; under LD_PRELOAD by
/// TANDEM_FILE_FAULT = "KIND OPERATION ERRNO FOLDER", KIND a number.
struct FileFault {
  FaultKind kind = FaultKind::none;
  // The one of so many, from 1, on this folder or on what is below it.
  int64_t operation = 0;
  int error = 0;
  std::string below;
  // A folder whose operations do not count.
  std::string but_not_below;
  // renameat2() cannot exchange, as on network file systems.
  bool no_exchange = false;
};

/// From now on, in this process. Not while other threads use files.
void arm(const FileFault& fault);

/// How many operations there were since.
int64_t file_operations();

/// The call and the path of the one that went wrong; of `full` there is none.
std::string faulty_operation();

/// Whether one is being held, and lets it go on. Any thread.
bool is_holding();
void release();

/// What a process that a fault ends exits with.
constexpr int kFaultExit = 99;

}  // namespace tandem
