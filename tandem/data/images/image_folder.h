#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/data/images/image_cache.h"
#include "tandem/data/images/image_listing.h"

namespace tandem {

/// Images of a folder that has one folder of PNG or JPEG files per class.
struct ImageFolder {
  // Class names and files, with paths relative to the folder.
  ImageListing listing;
  // Images of the files, in their order.
  DecodedImages images;
};

/// Reads a folder of images.
///
/// - `wanted`: size and number of channels to which images are converted (decode.h).
///   With the size {0, 0}, all images must have the same size. With 0 channels, images
///   become gray if all images are gray, otherwise RGB.
/// - `deadline`: end of the wait for another process that decodes the same images. A
///   single image may also take at most `deadline.time()`.
///
/// list_images() (image_listing.h) defines the order of images and classes,
/// open_image() (image_reader.h) the supported files, and decode_image() (decode.h) the
/// conversion of pixels.
///
/// Child processes decode on all CPUs (child_work.h). The pixels are stored in a file
/// in cache_directory(), which later calls map. Later calls decode again if the path,
/// size, inode number or a time of an image file has changed. If `checks_cache`, they
/// also decode again if the pixels in the file are damaged; this check reads all
/// pixels, and is left out if they have more than 4 GiB or half of the free memory. If
/// the file in the cache cannot be written, prints a warning and keeps the pixels in
/// memory.
///
/// Throws DataError for an invalid folder or file, or if there is too little memory. Do
/// not change environment variables in another thread during the call.
ImageFolder read_image_folder(
    const std::string& folder, const ImageShape& wanted, const Deadline& deadline,
    bool checks_cache = true);

/// Reads images without classes, at a path for which has_loose_images()
/// (image_listing.h) returns true. Works like read_image_folder(), but keeps the pixels
/// in memory instead of a file in the cache.
ImageFolder read_loose_images(
    const std::string& path, const ImageShape& wanted, const Deadline& deadline);

}  // namespace tandem
