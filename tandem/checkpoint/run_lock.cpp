#include "tandem/checkpoint/run_lock.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

constexpr std::chrono::milliseconds kBetweenTries(50);
constexpr int kTries = 40;

}  // namespace

RunLock::RunLock(const std::string& directory) : lock_(directory + "/run.lock") {
  for (int i = 0; i < kTries; ++i) {
    switch (lock_.try_lock()) {
      case FileLock::Result::locked:
      case FileLock::Result::no_file:
        return;
      case FileLock::Result::no_locks:
        log_warning(
            "[train] '" + lock_.path() + "' cannot be locked: " + std::strerror(errno) +
            "; check that no other run writes there");
        return;
      case FileLock::Result::taken:
        break;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  throw ConfigError(
      "[train] another run writes to '" + directory + "': " + lock_.holder() +
      "; wait for its end, stop it, or choose another --out");
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
        "' is a symbolic link, expected a folder; set --out to the folder to which it "
        "points");
  }
  if (info.st_uid != geteuid()) {
    throw ConfigError(fmt::format(
        "[train] '{}' belongs to user {}, expected user {}; set --out to your own "
        "folder",
        path, info.st_uid, geteuid()));
  }
}

}  // namespace tandem
