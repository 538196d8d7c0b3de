#include "app/fetch/target_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "app/fetch/progress.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/signals.h"

namespace tandem::app {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const auto size = entry.file_size(ignored);
    bytes += ignored ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

TargetFolder::TargetFolder(std::string folder, std::chrono::seconds patience)
    : folder_(std::move(folder)),
      lock_path_(folder_ + "/.fetch.lock"),
      is_new_(!file_exists(folder_)) {
  make_directories(folder_);
  auto last_change = Clock::now();
  int64_t bytes = 0;
  for (bool told = false; !lock(); told = true) {
    if (!told) {
      say("waiting for another process, which fetches into " + folder_);
    }
    std::this_thread::sleep_for(kBetweenLooks);
    if (stop_signal() != 0) {
      throw DataError("[fetch] stopped while another process fetches into " + folder_);
    }
    const int64_t before = std::exchange(bytes, bytes_in(folder_));
    if (bytes != before) {
      last_change = Clock::now();
    } else if (Clock::now() - last_change > patience) {
      throw DataError(
          "[fetch] another process fetches into '" + folder_ +
          "', but nothing has come for " + std::to_string(patience.count()) +
          " s; see whether it is stopped, or choose another folder with --to");
    }
  }
}

bool TargetFolder::lock() {
  lock_ = open(lock_path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (lock_ < 0 && errno == ENOENT) {
    // Who had it has removed it again, since nothing came.
    make_directories(folder_);
    return false;
  }
  if (lock_ < 0) {
    const std::string reason = std::strerror(errno);
    if (is_new_) {
      rmdir(folder_.c_str());
    }
    throw DataError(
        "[fetch] cannot write into '" + folder_ + "': " + reason +
        "; choose another folder with --to");
  }
  const bool taken = flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (taken || !is_still_at(lock_, lock_path_)) {
    close(std::exchange(lock_, -1));
    return false;
  }
  return true;
}

TargetFolder::~TargetFolder() {
  unlink(lock_path_.c_str());
  close(lock_);
  if (is_new_) {
    rmdir(folder_.c_str());
  }
}

bool can_write_into(const std::string& folder) {
  const bool is_new = !file_exists(folder);
  try {
    make_directories(folder);
  } catch (const DataError&) {
    return false;
  }
  std::string probe = folder + "/tmp-XXXXXX";
  int fd = mkstemp(probe.data());
  // Another process that tries the same has made the folder, and taken it away again.
  for (int tries = 0; fd < 0 && errno == ENOENT && tries < 10; ++tries) {
    make_directories(folder);
    probe = folder + "/tmp-XXXXXX";
    fd = mkstemp(probe.data());
  }
  if (fd >= 0) {
    close(fd);
    unlink(probe.c_str());
  }
  if (is_new) {
    rmdir(folder.c_str());
  }
  return fd >= 0;
}

}  // namespace tandem::app
