#include "tandem/base/held_folder.h"

#include <fcntl.h>

#include "tandem/base/files.h"

namespace tandem {

namespace {

std::string without_last_slashes(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path.substr(0, 1) : path.substr(0, last + 1);
}

}  // namespace

HeldFolder::HeldFolder(const std::string& path) : path_(without_last_slashes(path)) {}

void HeldFolder::hold() {
  if (!folder_) {
    folder_ =
        Descriptor(open(path_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
}

void HeldFolder::check() const {
  if (folder_ && !is_still_at(folder_.fd(), path_)) {
    fail_folder_lost(
        path_, file_exists(path_) ? "is another folder now" : "was removed or renamed");
  }
}

void fail_folder_lost(const std::string& path, const std::string& found) {
  throw FolderLost(
      "[train] '" + path + "' " + found +
      " during the run, expected the folder in which the run began; put that folder "
      "back and use --resume auto, or choose another --out");
}

}  // namespace tandem
