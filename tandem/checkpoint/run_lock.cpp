#include "tandem/checkpoint/run_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

constexpr std::chrono::milliseconds kBetweenTries(50);
constexpr int kTries = 40;
constexpr size_t kLongestName = 1000;

std::string own_name() {
  return fmt::format("process {} on host {}", getpid(), host_name());
}

std::string holder_of(const std::string& path) {
  try {
    const std::string text = read_file(path, kLongestName);
    return text.empty() ? "one that is just starting" : text;
  } catch (const DataError&) {
    return "one that cannot be named";
  }
}

}  // namespace

RunLock::RunLock(const std::string& directory) : path_(directory + "/run.lock") {
  for (int i = 0; i < kTries; ++i) {
    if (take()) {
      return;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  throw ConfigError(
      "[train] another run writes to '" + directory + "': " + holder_of(path_) +
      "; wait for its end, stop it, or choose another --out");
}

// False: somebody else has it.
bool RunLock::take() {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    return true;
  }
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) {
    if (is_still_at(fd_, path_)) {
      const std::string name = own_name();
      [[maybe_unused]] const int cut = ftruncate(fd_, 0);
      [[maybe_unused]] const auto written = write(fd_, name.data(), name.size());
      return true;
    }
  } else if (errno != EWOULDBLOCK) {
    log_warning(
        "[train] '" + path_ + "' cannot be locked: " + std::strerror(errno) +
        "; see that no other run writes there");
    close(fd_);
    unlink(path_.c_str());
    fd_ = -1;
    return true;
  }
  close(fd_);
  fd_ = -1;
  return false;
}

RunLock::~RunLock() {
  if (fd_ >= 0) {
    // While it is locked: who waits for it sees that it is gone, and makes another.
    unlink(path_.c_str());
    close(fd_);
  }
}

void check_own_directory(const std::string& directory) {
  const std::string path = directory.substr(0, directory.find_last_not_of('/') + 1);
  struct stat info {};
  if (path.empty() || lstat(path.c_str(), &info) != 0) {
    return;
  }
  if (S_ISLNK(info.st_mode)) {
    throw ConfigError(
        "[train] '" + path +
        "' is a symbolic link; name the folder that it leads to as --out");
  }
  if (info.st_uid != geteuid()) {
    throw ConfigError(fmt::format(
        "[train] '{}' belongs to user {}, and this is user {}; choose a folder of your "
        "own as --out",
        path, info.st_uid, geteuid()));
  }
}

}  // namespace tandem
