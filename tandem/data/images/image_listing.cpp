#include "tandem/data/images/image_listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

bool is_image_name(const std::string& file) {
  const std::string name = lower_case(file);
  return ends_with(name, ".png") || ends_with(name, ".jpg") || ends_with(name, ".jpeg");
}

// Files of one class, with the folder that contains them.
struct Entry {
  std::string folder;
  std::string name;
  int64_t bytes;
  int64_t changed;
};

class Lister {
 public:
  explicit Lister(const std::string& folder) : root_(folder) {}

  // Lists the images of the folder itself.
  ImageListing list_loose() {
    ImageListing listing;
    Found found = read_folder("");
    std::sort(
        found.images.begin(), found.images.end(),
        [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (const auto& entry : found.images) {
      listing.files.push_back({entry.name, 0, entry.bytes, entry.changed});
    }
    warn_of_ignored("set --data to a folder that has only images");
    return listing;
  }

  ImageListing list() {
    ImageListing listing;
    Found found = read_folder("");
    num_ignored_ += found.images.size();
    if (!found.images.empty()) {
      ignored_ = found.images.front().name;
    }
    std::sort(found.folders.begin(), found.folders.end());
    if (found.folders.empty()) {
      throw DataError(
          "[data] '" + root_ +
          "' contains no folders, expected one folder per class; " +
          "put the images of each class into a folder of their own");
    }
    for (const auto& name : found.folders) {
      add_class(name, listing);
    }
    warn_of_ignored(
        "put PNG or JPEG images into class folders, with names that end in .png, .jpg "
        "or .jpeg");
    return listing;
  }

 private:
  // Content of one folder.
  struct Found {
    std::vector<std::string> folders;
    std::vector<Entry> images;
  };

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

  Found read_folder(const std::string& relative) {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(
        opendir(path_of(relative).c_str()), &closedir);
    if (stream == nullptr) {
      fail_on_file("read the directory", path_of(relative));
    }
    Found found;
    errno = 0;
    while (const dirent* entry = readdir(stream.get())) {
      if (entry->d_name[0] != '.') {
        add_entry(dirfd(stream.get()), relative, entry->d_name, found);
      }
      errno = 0;
    }
    if (errno != 0) {
      fail_on_file("read the directory", path_of(relative));
    }
    return found;
  }

  void add_entry(
      int directory, const std::string& relative, const std::string& name,
      Found& found) {
    const std::string path = relative.empty() ? name : relative + "/" + name;
    struct stat status {};
    if (fstatat(directory, name.c_str(), &status, 0) != 0) {
      fail_on_file("read", path_of(path));
    }
    if (S_ISDIR(status.st_mode)) {
      found.folders.push_back(name);
    } else if (S_ISREG(status.st_mode) && is_image_name(name)) {
      found.images.push_back(
          {relative, name, status.st_size,
           status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec});
    } else if (num_ignored_++ == 0) {
      ignored_ = path;
    }
  }

  void add_class(const std::string& name, ImageListing& listing) {
    std::vector<Entry> entries;
    add_images(name, entries);
    if (entries.empty()) {
      throw DataError(
          "[data] class folder '" + path_of(name) +
          "' contains no images, expected PNG or JPEG files; add images or remove it");
    }
    // A folder's files come before the files of a folder whose path is greater.
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.folder, a.name) < std::tie(b.folder, b.name);
    });
    const auto label = static_cast<int64_t>(listing.class_names.size());
    listing.class_names.push_back(name);
    for (auto& entry : entries) {
      entry.folder += '/';
      entry.folder += entry.name;
      listing.files.push_back(
          {std::move(entry.folder), label, entry.bytes, entry.changed});
    }
  }

  // Adds the images of a folder and of all folders in it.
  void add_images(const std::string& relative, std::vector<Entry>& entries) {
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
    Found found = read_folder(relative);
    std::move(found.images.begin(), found.images.end(), std::back_inserter(entries));
    for (const auto& folder : found.folders) {
      add_images(relative + "/" + folder, entries);
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
  return {{}, {{std::filesystem::path(path).filename(), 0, 0, 0}}};
}

}  // namespace tandem
