#pragma once

#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a folder that contains folders.
[[nodiscard]] bool has_image_folders(const std::string& path);

/// Loads images from a folder that has one folder of PNG or JPEG files per class
/// (images/image_folder.h), or folders train/ and test/ (or val/) with such folders.
/// DataOptions::image_size is the size of the images.
///
/// Throws ConfigError for an invalid size. Throws DataError if the test part has a
/// class that the training part lacks. Throws the errors of read_image_folder().
[[nodiscard]] DatasetSplits load_image_folders(
    const DataRequest& request, const Deadline& deadline);

/// Replaces the classes of a part of an image folder by the indices of the same names
/// in `names`. Throws DataError if `names` lacks a class.
void rename_classes(Dataset& part, const std::vector<std::string>& names);

}  // namespace tandem
