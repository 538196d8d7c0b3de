#include "tandem/launch/meeting_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

// Name of the store's socket. Other programs do not use this name, so it identifies a
// launcher's directory.
constexpr const char* kStore = "/launcher-store";

bool is_own_directory(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

// Removes the directory of a killed launcher. Keeps a directory without a store, which
// may belong to a launcher that is starting.
void remove_if_left(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  if (is_own_directory(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      file_exists(path + kStore)) {
    remove_all(path);
  }
  close(fd);
}

void remove_leftovers(const std::string& beside) {
  const std::string folder = beside.substr(0, beside.rfind('/'));
  const std::string prefix = beside.substr(folder.size() + 1, sizeof("tandem-") - 1);
  try {
    for (const auto& name : list_directory(folder)) {
      const std::string path = fs::path(folder) / name;
      if (name.rfind(prefix, 0) == 0 && path.size() == beside.size() &&
          path != beside) {
        remove_if_left(path);
      }
    }
  } catch (const DataError&) {
    // The folder is writable but not readable, so the directories stay.
  }
}

}  // namespace

MeetingDirectory::MeetingDirectory() : path_(make_private_directory()) {
  lock_fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  flock(lock_fd_, LOCK_EX);
  remove_leftovers(path_);
}

MeetingDirectory::~MeetingDirectory() {
  remove_all(path_);
  close(lock_fd_);
}

std::string MeetingDirectory::store_address() const {
  return "unix:" + path_ + kStore;
}

}  // namespace tandem
