#include "app/fetch/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"

namespace tandem::app {

namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

[[noreturn]] void fail_part(
    const std::string& what, const std::string& path, int reason = errno) {
  throw DataError(
      "[fetch] cannot " + what + " '" + path + "': " + std::strerror(reason) +
      (reason == ENOSPC || reason == EDQUOT
           ? "; free some space, the next fetch goes on"
           : "; choose another folder with --to"));
}

}  // namespace

std::string sha256_of_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) {
      return "";
    }
    fail_part("read", path);
  }
  std::vector<char> chunk(kChunkBytes);
  Sha256 hash;
  ssize_t got = 0;
  do {
    got = read(fd, chunk.data(), chunk.size());
    if (got > 0) {
      hash.update(chunk.data(), static_cast<size_t>(got));
    }
  } while (got > 0 || (got < 0 && errno == EINTR));
  const int reason = errno;
  close(fd);
  if (got < 0) {
    fail_part("read", path, reason);
  }
  return hash.hex_digest();
}

PartFile::PartFile(std::string path)
    : whole_(std::move(path)), path_(whole_ + ".part") {
  // A link that somebody put there is not followed.
  fd_ =
      open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  struct stat status {};
  if (fd_ < 0 || fstat(fd_, &status) != 0) {
    fail_part("write", path_);
  }
  if (!S_ISREG(status.st_mode)) {
    close(fd_);
    fail_part("write", path_, EEXIST);
  }
  size_ = lseek(fd_, 0, SEEK_END);
}

PartFile::~PartFile() {
  if (fd_ >= 0) {
    if (size_ == 0) {
      unlink(path_.c_str());
    }
    close(fd_);
  }
}

void PartFile::append(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd_, data, size);
    if (written < 0 && errno != EINTR) {
      fail_part("write", path_);
    }
    if (written > 0) {
      data += written;
      size -= static_cast<size_t>(written);
      size_ += written;
    }
  }
}

void PartFile::clear() {
  if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0) {
    fail_part("write", path_);
  }
  size_ = 0;
}

std::string PartFile::sha256() const {
  return sha256_of_file(path_);
}

void PartFile::rename_to_whole() {
  if (fsync(fd_) != 0 || rename(path_.c_str(), whole_.c_str()) != 0) {
    fail_part("write", whole_);
  }
  close(std::exchange(fd_, -1));
  sync_directory(std::filesystem::path(whole_).parent_path().string());
}

}  // namespace tandem::app
