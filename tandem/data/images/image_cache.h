#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/base/bytes.h"
#include "tandem/data/images/decode.h"

namespace tandem {

/// Decoded images of one size.
struct DecodedImages {
  ImageShape shape;
  // Images: samples x channels x height x width bytes.
  Bytes pixels;
  // True if `pixels` is the mapped memory of a file.
  bool is_mapped = true;
  // Checksum of `pixels` in the cache file.
  uint64_t checksum = 0;
};

/// Returns the header of a cache file. In the file, the images follow the header.
///
/// The header has a version, a SHA-256 of its other fields, `shape`, `num_images`,
/// `key` and `checksum`. Zeros pad it to a multiple of 4096 bytes; its size depends
/// only on `key`. `key` is a text that describes the files and settings from which the
/// images were made. `checksum` is the fingerprint() of the images.
std::string image_cache_header(
    const std::string& key, const ImageShape& shape, int64_t num_images,
    uint64_t checksum);

/// Returns the images in the content of a cache file. Returns nullopt if the file is
/// incomplete or damaged, has another version, or has another key or number of images.
/// Does not read the images; has_its_checksum() checks them.
std::optional<DecodedImages> parse_image_cache(
    const Bytes& file, const std::string& key, int64_t num_images);

/// Maps a cache file and returns its images, which share memory with all processes that
/// map the file. Returns nullopt if there is no such file, and in the cases in which
/// parse_image_cache() does.
std::optional<DecodedImages> open_image_cache(
    const std::string& path, const std::string& key, int64_t num_images);

/// Returns whether the images in a cache file have the checksum of its header. Reads
/// all images.
[[nodiscard]] bool has_its_checksum(const DecodedImages& images);

}  // namespace tandem
