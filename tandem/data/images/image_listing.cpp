#include "tandem/data/images/image_listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

bool is_image_name(const std::string& file) {
  const std::string name = lower_case(file);
  return ends_with(name, ".png") || ends_with(name, ".jpg") || ends_with(name, ".jpeg");
}

// Orders files by their folder, then by their name.
bool is_before(const ImageFile& a, const ImageFile& b) {
  const auto key = [](std::string_view path) {
    const size_t slash = path.rfind('/');
    return std::pair(path.substr(0, slash), path.substr(slash + 1));
  };
  return key(a.path) < key(b.path);
}

std::string version_of(const struct stat& status) {
  return fmt::format(
      "{} {} {}.{} {}.{}", status.st_size, status.st_ino, status.st_mtim.tv_sec,
      status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

class Lister {
 public:
  explicit Lister(const std::string& folder) : root_(folder) {}

  // Lists the images of the folder itself.
  ImageListing list_loose() {
    ImageListing listing;
    read_folder("", listing.files);
    std::sort(listing.files.begin(), listing.files.end(), &is_before);
    warn_of_ignored("set --data to a folder that has only images");
    return listing;
  }

  ImageListing list() {
    ImageListing listing;
    std::vector<ImageFile> outside;
    const auto folders = read_folder("", outside);
    num_ignored_ += outside.size();
    if (!outside.empty()) {
      ignored_ = outside.front().path;
    }
    if (folders.empty()) {
      throw DataError(
          "[data] '" + root_ +
          "' contains no folders, expected one folder per class; " +
          "put the images of each class into a folder of their own");
    }
    for (const auto& name : folders) {
      add_class(name, listing);
    }
    warn_of_ignored(
        "put PNG or JPEG images into class folders, with names that end in .png, .jpg "
        "or .jpeg");
    return listing;
  }

 private:
  void warn_of_ignored(const std::string& action) const {
    if (num_ignored_ > 0) {
      log_warning(fmt::format(
          "[data] {} file{} in '{}' {} ignored, such as '{}'; {}", num_ignored_,
          num_ignored_ == 1 ? "" : "s", root_, num_ignored_ == 1 ? "is" : "are",
          ignored_, action));
    }
  }

  std::string path_of(const std::string& relative) const {
    return relative.empty() ? root_ : root_ + "/" + relative;
  }

  // Adds the images of a folder to `images`. Returns the paths of the folders in it,
  // sorted.
  std::vector<std::string> read_folder(
      const std::string& relative, std::vector<ImageFile>& images) {
    // Finding a file by its whole path takes twice as long as in its open folder.
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(
        opendir(path_of(relative).c_str()), &closedir);
    if (stream == nullptr) {
      fail_on_file("read the directory", path_of(relative));
    }
    std::vector<std::string> folders;
    errno = 0;
    while (const dirent* entry = readdir(stream.get())) {
      const std::string name = entry->d_name;
      const std::string path = relative.empty() ? name : relative + "/" + name;
      struct stat status {};
      if (name.front() == '.') {
        continue;
      }
      if (fstatat(dirfd(stream.get()), name.c_str(), &status, 0) != 0) {
        fail_on_file("read", path_of(path));
      }
      if (S_ISDIR(status.st_mode)) {
        folders.push_back(path);
      } else if (S_ISREG(status.st_mode) && is_image_name(name)) {
        images.push_back({path, 0, version_of(status)});
      } else if (num_ignored_++ == 0) {
        ignored_ = path;
      }
      errno = 0;
    }
    if (errno != 0) {
      fail_on_file("read the directory", path_of(relative));
    }
    std::sort(folders.begin(), folders.end());
    return folders;
  }

  // Checks a name that checkpoints will contain.
  void check_name(const std::string& name) const {
    if (const auto byte = describe_invalid_utf8(name)) {
      throw DataError(fmt::format(
          "[data] the class folder '{}' in '{}' has {} of its name, expected UTF-8; "
          "rename the folder, for example with convmv -f latin1 -t utf8 --notest",
          with_escapes(name), root_, *byte));
    }
  }

  void add_class(const std::string& name, ImageListing& listing) {
    check_name(name);
    std::vector<ImageFile> images;
    add_images(name, images);
    if (images.empty()) {
      throw DataError(
          "[data] class folder '" + path_of(name) +
          "' contains no images, expected PNG or JPEG files; add images or remove it");
    }
    std::sort(images.begin(), images.end(), &is_before);
    const auto label = static_cast<int64_t>(listing.class_names.size());
    listing.class_names.push_back(name);
    for (auto& image : images) {
      image.label = label;
      listing.files.push_back(std::move(image));
    }
  }

  // Adds the images of a folder and of all folders in it.
  void add_images(const std::string& relative, std::vector<ImageFile>& images) {
    struct stat status {};
    if (stat(path_of(relative).c_str(), &status) != 0) {
      fail_on_file("read the directory", path_of(relative));
    }
    const auto id = std::make_pair(status.st_dev, status.st_ino);
    if (std::find(parents_.begin(), parents_.end(), id) != parents_.end()) {
      throw DataError(
          "[data] '" + path_of(relative) +
          "' is a link to a folder that contains it; remove the link");
    }
    parents_.push_back(id);
    for (const auto& folder : read_folder(relative, images)) {
      add_images(folder, images);
    }
    parents_.pop_back();
  }

  const std::string root_;
  // Number of ignored files, and the path of one of them.
  size_t num_ignored_ = 0;
  std::string ignored_;
  // Folders that contain the folder that is read.
  std::vector<std::pair<dev_t, ino_t>> parents_;
};

}  // namespace

ImageListing list_images(const std::string& folder) {
  return Lister(folder).list();
}

bool has_loose_images(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    return is_image_name(path);
  }
  bool has_image = false;
  for (auto entry = std::filesystem::directory_iterator(path, error);
       !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.front() != '.' && entry->is_directory(error)) {
      return false;
    }
    has_image = has_image || is_image_name(name);
  }
  return has_image;
}

ImageListing list_loose_images(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Lister(path).list_loose();
  }
  return {{}, {{std::filesystem::path(path).filename()}}};
}

}  // namespace tandem
