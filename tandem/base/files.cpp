#include "tandem/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/file_error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

// Part of NAME.tmp-NUMBER, the name of a file that replace_file() has not yet
// completed.
constexpr const char* kTemporary = ".tmp-";

std::string advice(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space";
    case EFBIG:
      return "; raise ulimit -f";
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

// Opens a new file next to `path`. mkostemp() is not used, because its files have mode
// 0600; open() applies the user's umask.
std::pair<std::string, Descriptor> open_temporary(const std::string& path) {
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    std::string temporary = path + kTemporary + std::to_string(random());
    Descriptor file(
        open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file) {
      return {std::move(temporary), std::move(file)};
    }
    if (errno != EEXIST) {
      break;
    }
  }
  fail_on_file("write", path);
}

// Returns whether a path names a device, pipe or socket, also through a link such as
// /dev/stdout, which a renamed file would replace.
bool is_stream(const std::string& path) {
  std::error_code ignored;
  const auto kind = fs::status(path, ignored).type();
  const bool is_link = fs::is_symlink(fs::symlink_status(path, ignored));
  return (is_link && parent_of(path) == "/dev" && fs::exists(path, ignored)) ||
         kind == fs::file_type::character || kind == fs::file_type::block ||
         kind == fs::file_type::fifo || kind == fs::file_type::socket;
}

void write_stream(const std::string& path, const std::function<void(int fd)>& write) {
  const Descriptor stream(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!stream) {
    fail_on_file("write", path);
  }
  write(stream.fd());
}

// Returns the first folder of a path, from its end, in which other users can rename
// files; "" if there is none. They cannot do so in a sticky folder.
std::string folder_of_others(const std::string& path) {
  std::error_code ignored;
  fs::path folder = fs::canonical(path, ignored);
  for (; !folder.empty(); folder = folder.parent_path()) {
    struct stat info {};
    if (stat(folder.c_str(), &info) == 0 && (info.st_mode & S_IWOTH) != 0 &&
        (info.st_mode & S_ISVTX) == 0) {
      return folder.string();
    }
    if (folder == folder.parent_path()) {
      break;
    }
  }
  return "";
}

}  // namespace

std::string parent_of(const std::string& path) {
  const auto parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void fail_on_file(const std::string& what, const std::string& path) {
  const std::string reason = std::strerror(errno);
  throw FileError(
      "[files] cannot " + what + " '" + path + "': " + reason + advice(errno));
}

std::string read_file(const std::string& path, size_t most_bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    fail_on_file("read", path);
  }
  return read_file(file.fd(), path, most_bytes);
}

std::string read_file(int fd, const std::string& path, size_t most_bytes) {
  std::string content;
  char buffer[1 << 16];
  ssize_t got = 0;
  do {
    got = read(fd, buffer, sizeof(buffer));
    content.append(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  } while (content.size() <= most_bytes && (got > 0 || (got < 0 && errno == EINTR)));
  if (got < 0) {
    fail_on_file("read", path);
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
      fail_on_file("write", path);
    }
  }
}

void replace_file(const std::string& path, const std::function<void(int fd)>& write) {
  if (is_stream(path)) {
    write_stream(path, write);
    return;
  }
  const auto [temporary, file] = open_temporary(path);
  try {
    write(file.fd());
    if (fsync(file.fd()) != 0 || rename(temporary.c_str(), path.c_str()) != 0) {
      fail_on_file("write", path);
    }
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  sync_directory(parent_of(path));
}

void replace_file(const std::string& path, const std::string& content) {
  replace_file(
      path, [&](int fd) { write_all(fd, content.data(), content.size(), path); });
}

void remove_unfinished(const std::string& path) {
  const std::string parent = parent_of(path);
  const std::string prefix = fs::path(path).filename().string() + kTemporary;
  for (const auto& name : list_directory(parent)) {
    if (name.rfind(prefix, 0) == 0 &&
        parse_number<uint32_t>(name.substr(prefix.size()))) {
      unlink((parent + "/" + name).c_str());
    }
  }
}

void sync_directory(const std::string& path) {
  const Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A directory can be writable but not readable.
  if (!directory && errno == EACCES) {
    return;
  }
  // Not every file system can flush a directory.
  if (!directory ||
      (fsync(directory.fd()) != 0 && errno != EINVAL && errno != ENOTSUP)) {
    fail_on_file("flush", path);
  }
}

void make_directories(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error) {
    errno = error.value();
    fail_on_file("make the directory", path);
  }
  if (made) {
    sync_directory(parent_of(path));
  }
}

void make_subdirectory(const std::string& path) {
  const auto is_directory = [&] {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  };
  if (is_directory()) {
    return;
  }
  if (mkdir(path.c_str(), 0777) != 0) {
    const int reason = errno;
    // Another rank may have made it meanwhile.
    if (reason == EEXIST && is_directory()) {
      return;
    }
    errno = reason;
    fail_on_file("make the directory", path);
  }
  sync_directory(parent_of(path));
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
    fail_on_file("read the directory", path);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string temporary_directory() {
  const std::string usual = get_env("TMPDIR").value_or("/tmp");
  const bool chosen = !get_env("TMPDIR").value_or("").empty();
  for (const auto& path : {usual, std::string("/tmp"), std::string("/dev/shm")}) {
    const bool writable = access(path.c_str(), W_OK | X_OK) == 0;
    const auto unsafe = writable ? folder_of_others(path) : "";
    if (!unsafe.empty() && chosen && path == usual) {
      throw ConfigError(
          "[files] TMPDIR is '" + path + "', but all users can replace files in '" +
          unsafe +
          "', expected a sticky or private folder; set TMPDIR to another "
          "folder, or run: chmod +t '" +
          unsafe + "'");
    }
    if (writable && unsafe.empty()) {
      return path;
    }
  }
  return usual;
}

std::string make_private_directory() {
  std::string path = temporary_directory() + "/tandem-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    const int reason = errno;
    throw DataError(
        "[files] cannot make the directory '" + path + "': " + std::strerror(reason) +
        "; set TMPDIR to a folder that you can write");
  }
  return path;
}

bool is_still_at(int fd, const std::string& path, bool follows_link) {
  struct stat held {};
  struct stat there {};
  const int flags = follows_link ? 0 : AT_SYMLINK_NOFOLLOW;
  return fstat(fd, &held) == 0 && fstatat(AT_FDCWD, path.c_str(), &there, flags) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

bool is_in_folder(const std::string& path, const std::string& folder) {
  std::error_code error;
  const auto trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  return !path.empty() &&
         (fs::equivalent(parent_of(trimmed), folder, error) ||
          fs::equivalent(fs::canonical(path, error).parent_path(), folder, error));
}

bool has_cache_directory() {
  return !get_env("XDG_CACHE_HOME").value_or("").empty() ||
         !get_env("HOME").value_or("").empty();
}

std::string cache_directory() {
  // The cache is not below /tmp, where another user could create the folder first and
  // choose the data that this process reads.
  if (!has_cache_directory()) {
    throw ConfigError(
        "[files] XDG_CACHE_HOME and HOME are not set, expected one of them for the "
        "cache; set one to your own folder");
  }
  if (const auto cache = get_env("XDG_CACHE_HOME"); cache && !cache->empty()) {
    return *cache + "/tandem";
  }
  return *get_env("HOME") + "/.cache/tandem";
}

std::string executable_path() {
  return fs::read_symlink("/proc/self/exe").string();
}

std::string find_installed(const std::string& file) {
  const std::string own = executable_path();
  const std::string folder = own.substr(0, own.rfind('/'));
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  for (const auto& path : {folder + "/" + file, prefix + "/libexec/tandem/" + file}) {
    if (file_exists(path)) {
      return path;
    }
  }
  return "";
}

std::string cuda_library_path() {
  const auto named = get_env("TANDEM_CUDA_LIBRARY");
  return named ? *named : find_installed("libtandem_cuda.so");
}

}  // namespace tandem
