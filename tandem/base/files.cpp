#include "tandem/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

std::string parent_of(const std::string& path) {
  const auto parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string advice(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space";
    case EISDIR:
      return "; name a file in it";
    case ENOENT:
      return "; check the path";
    case ENOTDIR:
    case EEXIST:
      return "; a part of it is not a directory, choose another path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; choose a place that you may use";
    default:
      return "";
  }
}

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  const std::string reason = std::strerror(errno);
  throw DataError(
      "[files] cannot " + what + " '" + path + "': " + reason + advice(errno));
}

}  // namespace

std::string read_file(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    fail("read", path);
  }
  std::string content;
  char buffer[1 << 16];
  ssize_t got = 0;
  do {
    got = read(fd, buffer, sizeof(buffer));
    content.append(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  } while (content.size() <= most_bytes && (got > 0 || (got < 0 && errno == EINTR)));
  const int reason = errno;
  close(fd);
  if (got < 0) {
    errno = reason;
    fail("read", path);
  }
  if (content.size() > most_bytes) {
    throw DataError(
        "[files] '" + path + "' holds more than " + std::to_string(most_bytes) +
        " bytes; name another file");
  }
  return content;
}

void write_all(int fd, const void* data, size_t size, const std::string& path) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(fd, next, size);
    if (written >= 0) {
      next += written;
      size -= static_cast<size_t>(written);
    } else if (errno != EINTR) {
      fail("write", path);
    }
  }
}

void replace_file(const std::string& path, const std::function<void(int fd)>& write) {
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) {
    fail("write", path);
  }
  try {
    write(fd);
    if (fchmod(fd, 0644) != 0 || fsync(fd) != 0 ||
        rename(temporary.c_str(), path.c_str()) != 0) {
      fail("write", path);
    }
  } catch (...) {
    close(fd);
    unlink(temporary.c_str());
    throw;
  }
  close(fd);
  sync_directory(parent_of(path));
}

void replace_file(const std::string& path, const std::string& content) {
  replace_file(
      path, [&](int fd) { write_all(fd, content.data(), content.size(), path); });
}

void sync_directory(const std::string& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
}

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    errno = error.value();
    fail("make the directory", path);
  }
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<std::string> list_directory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    errno = error.value();
    fail("read the directory", path);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string make_private_directory() {
  std::string path = get_env("TMPDIR").value_or("/tmp") + "/tandem-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    fail("make the directory", path);
  }
  return path;
}

std::string cache_directory() {
  if (const auto cache = get_env("XDG_CACHE_HOME"); cache && !cache->empty()) {
    return *cache + "/tandem";
  }
  return get_env("HOME").value_or("/tmp") + "/.cache/tandem";
}

std::string executable_path() {
  return fs::read_symlink("/proc/self/exe").string();
}

FileLock::FileLock(const std::string& path) {
  make_directories(parent_of(path));
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0 || flock(fd_, LOCK_EX) != 0) {
    fail("lock", path);
  }
}

FileLock::~FileLock() {
  close(fd_);
}

}  // namespace tandem
