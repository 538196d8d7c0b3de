#include "tandem/base/file_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
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

std::string holder_of(const std::string& path) {
  const std::string text = read_file(path, kLongestName);
  return text.empty() ? "another process" : text;
}

}  // namespace

FileLock::FileLock(const std::string& path, const Deadline& deadline) {
  make_directories(std::filesystem::path(path).parent_path().string());
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    fail_lock(
        path, std::string(std::strerror(errno)) + "; choose a place that you may use");
  }
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const int reason = errno;
      close(fd_);
      fail_lock(
          path, std::string(std::strerror(reason)) + "; choose another file system");
    }
    if (deadline.passed()) {
      close(fd_);
      fail_lock(
          path,
          fmt::format(
              "{} has had it for {} s; see whether it is stopped, or wait longer "
              "with --timeout-seconds",
              holder_of(path), static_cast<double>(deadline.time().count()) / 1000));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  const auto name = fmt::format("process {} on host {}", getpid(), host_name());
  [[maybe_unused]] const int cut = ftruncate(fd_, 0);
  [[maybe_unused]] const auto written = write(fd_, name.data(), name.size());
}

FileLock::~FileLock() {
  close(fd_);
}

}  // namespace tandem
