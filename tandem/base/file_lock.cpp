#include "tandem/base/file_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"

namespace tandem {

namespace {

constexpr Deadline::Milliseconds kBetweenTries{20};
constexpr size_t kLongestName = 1000;

[[noreturn]] void fail_lock(const std::string& path, const std::string& reason) {
  throw DataError("[files] cannot lock '" + path + "': " + reason);
}

bool has_other_names(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_nlink > 1;
}

}  // namespace

FileLock::FileLock(const std::string& path, const Deadline& deadline) : path_(path) {
  make_directories(std::filesystem::path(path).parent_path().string());
  for (Result result = try_lock(); result != Result::locked; result = try_lock()) {
    if (result == Result::no_file) {
      fail_lock(
          path,
          std::strerror(errno) + std::string("; choose a place that you may use"));
    }
    if (result == Result::no_locks) {
      fail_lock(
          path, std::strerror(errno) + std::string("; choose another file system"));
    }
    if (deadline.passed()) {
      fail_lock(
          path, fmt::format(
                    "{} has held the lock for {} s; check whether that "
                    "process is stopped, or raise --timeout-seconds",
                    holder(), static_cast<double>(deadline.time().count()) / 1000));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

FileLock::Result FileLock::try_lock() {
  Descriptor file(open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) {
    return Result::no_file;
  }
  const int reason = flock(file.fd(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  const bool is_ours = reason == 0 && is_still_at(file.fd(), path_);
  if (is_ours && has_other_names(file.fd())) {
    // The file would be overwritten under its other names too.
    unlink(path_.c_str());
    return Result::taken;
  }
  if (is_ours) {
    const auto name = fmt::format("process {} on host {}", getpid(), host_name());
    [[maybe_unused]] const int cut = ftruncate(file.fd(), 0);
    [[maybe_unused]] const auto written = write(file.fd(), name.data(), name.size());
    file_ = std::move(file);
    return Result::locked;
  }
  // If `reason` is 0, the previous holder has removed the file since open().
  if (reason == 0 || reason == EWOULDBLOCK || reason == EINTR) {
    return Result::taken;
  }
  unlink(path_.c_str());
  file = Descriptor();
  errno = reason;
  return Result::no_locks;
}

FileLock::~FileLock() {
  if (file_ && !is_lost()) {
    // Removes the file before unlocking it, so that a waiting process sees the removal.
    unlink(path_.c_str());
  }
}

bool FileLock::is_lost() const {
  return file_ && !is_still_at(file_.fd(), path_);
}

std::string FileLock::holder() const {
  try {
    const std::string text = read_file(path_, kLongestName);
    return text.empty() ? "a process that has just started" : text;
  } catch (const DataError&) {
    return "a process that cannot be named";
  }
}

}  // namespace tandem
