#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// A file of an image folder.
struct ImageFile {
  // Path relative to the image folder, such as "cats/a.jpg".
  std::string path;
  int64_t label = 0;
  // Size, inode number and times of the last changes of the content and of the inode,
  // as text. Programs can set back only the time of the content.
  std::string version = {};
};

/// Class names and image files of an image folder.
struct ImageListing {
  std::vector<std::string> class_names;
  std::vector<ImageFile> files;
};

/// Lists the images of a folder of class folders, without opening the images.
///
/// Classes and files have the order of torchvision's `ImageFolder`: classes by name;
/// files by their folder and then by their name. Names are compared byte by byte. Files
/// in folders of a class folder belong to the class. Links are followed. Files and
/// folders whose names begin with a dot are ignored. Files outside of class folders,
/// and files whose names do not end in .png, .jpg or .jpeg (in any case), are ignored
/// with one warning, which counts them.
///
/// Throws DataError if there are no class folders, the name of a class folder is not
/// UTF-8, a class folder has no images, a folder or file cannot be read, or a link
/// leads to a folder that contains it.
ImageListing list_images(const std::string& folder);

/// Returns whether a path is a PNG or JPEG file, or a folder that contains such files
/// and no folders. Reads only names, not the content of files.
[[nodiscard]] bool has_loose_images(const std::string& path);

/// Lists the images at a path for which has_loose_images() returns true, by name. The
/// images have no classes: there are no class names, and all labels are 0. Paths are
/// relative to the folder, or to the folder of the file. Ignores files, and throws
/// errors, like list_images().
ImageListing list_loose_images(const std::string& path);

}  // namespace tandem
