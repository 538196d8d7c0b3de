#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/bytes.h"
#include "tandem/base/deadline.h"
#include "tandem/data/images/image_reader.h"

namespace tandem {

/// Decoded images of a folder that has one folder of PNG or JPEG files per class.
struct ImageFolder {
  // Names of the class folders.
  std::vector<std::string> class_names;
  int64_t size = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Images: samples x channels x height x width bytes.
  Bytes pixels;
  // True if `pixels` is the mapped memory of a file.
  bool is_mapped = false;
  // Class of each image, as an index in class_names.
  std::vector<int64_t> labels;
  // Path of each image, relative to the folder.
  std::vector<std::string> files;
};

/// Reads a folder of images.
///
/// - `image_size`: size to which images are resized and cropped (plan_resize(),
///   decode.h). {0, 0}: all images must have the same size.
/// - `channels`: 1 for gray, 3 for RGB. 0: gray if all images are gray, otherwise RGB.
/// - `deadline`: end of the wait for another process that decodes the same images. A
///   single image may also take at most `deadline.time()`.
///
/// list_images() (image_listing.h) defines the order of images and classes,
/// open_image() (image_reader.h) the supported files, and decode_image() (decode.h) the
/// conversion of pixels.
///
/// Child processes decode on all CPUs (child_work.h). The pixels are stored in a file
/// in cache_directory(), which later calls map. Later calls decode again if the path,
/// size or time of an image file has changed. If the file in the cache cannot be
/// written, prints a warning and keeps the pixels in memory.
///
/// Throws DataError for an invalid folder or file, or if there is too little memory.
/// Throws ConfigError if `image_size` or `channels` is invalid. Do not change
/// environment variables in another thread during the call.
ImageFolder read_image_folder(
    const std::string& folder, const ImageSize& image_size, int channels,
    const Deadline& deadline);

/// Reads images without classes, at a path for which has_loose_images()
/// (image_listing.h) returns true. Works like read_image_folder(), but keeps the pixels
/// in memory instead of a file in the cache.
ImageFolder read_loose_images(
    const std::string& path, const ImageSize& image_size, int channels,
    const Deadline& deadline);

}  // namespace tandem
