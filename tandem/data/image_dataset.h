#pragma once

#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a folder that contains visible folders.
[[nodiscard]] bool has_image_folders(const std::string& path);

/// Loads images from a folder that has one folder of PNG or JPEG files per class
/// (images/image_folder.h). The class folders may also be in the folders of parts
/// (part_files.h). Warns of folders that are ignored. DataOptions::image_size is the
/// size of the images. Sets Dataset::files.
///
/// Throws ConfigError for an invalid size. Throws DataError if another part has a class
/// or an image size that the training part lacks, and for a training if the path is not
/// the folder of the class folders. Throws the errors of read_image_folder().
[[nodiscard]] DatasetSplits load_image_folders(
    const DataRequest& request, const Deadline& deadline);

/// Loads the images at a path for which has_loose_images() (images/image_listing.h)
/// returns true, without targets. Throws the errors of read_loose_images().
[[nodiscard]] Dataset load_image_inputs(
    const DataRequest& request, const Deadline& deadline);

}  // namespace tandem
