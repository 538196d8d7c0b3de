#include "tandem/data/images/image_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/fingerprint.h"
#include "tandem/base/log.h"
#include "tandem/base/mapped_file.h"
#include "tandem/base/memory.h"
#include "tandem/base/sha256.h"
#include "tandem/data/images/child_work.h"
#include "tandem/data/images/decode.h"

namespace tandem {

namespace {

constexpr size_t kNameDigits = 32;
// Reading more pixels from a slow disk could take as long as --timeout-seconds.
constexpr int64_t kMostChecked = int64_t{4} << 30;

std::string without_slashes(const std::string& folder) {
  return folder.substr(0, folder.find_last_not_of('/') + 1);
}

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Properties of all images' headers, in shared memory.
struct Survey {
  // Size of the first image.
  std::atomic<int64_t> height;
  std::atomic<int64_t> width;
  std::atomic<bool> has_color;
};

class FolderReader {
 public:
  // `listing` has paths relative to `folder`.
  FolderReader(
      std::string folder, ImageListing listing, const ImageShape& wanted,
      const Deadline& deadline, bool checks_cache = false)
      : folder_(std::move(folder)),
        wanted_(wanted),
        deadline_(deadline),
        checks_cache_(checks_cache),
        listing_(std::move(listing)),
        num_images_(static_cast<int64_t>(listing_.files.size())) {}

  ImageFolder read() {
    auto images = read_images();
    return {std::move(listing_), std::move(images)};
  }

 private:
  DecodedImages read_images() {
    if (listing_.class_names.empty()) {
      return decode_to_memory();
    }
    if (!has_cache_directory()) {
      warn("XDG_CACHE_HOME and HOME are not set, expected one of them for the cache");
      return decode_to_memory();
    }
    make_key();
    if (auto images = find_in_cache()) {
      return *images;
    }
    std::optional<FileLock> lock;
    try {
      lock.emplace(cache_ + ".lock", deadline_);
    } catch (const DataError& error) {
      if (deadline_.passed()) {
        throw;
      }
      warn(error.what());
      return decode_to_memory();
    }
    // Another process may have decoded the images meanwhile.
    if (auto images = find_in_cache()) {
      return *images;
    }
    return decode_to_cache();
  }

  std::optional<DecodedImages> find_in_cache() {
    auto images = open_image_cache(cache_, key_, num_images_);
    const auto most = static_cast<size_t>(std::min(kMostChecked, free_memory() / 2));
    is_damaged_ = images && checks_cache_ && images->pixels.size() <= most &&
                  !has_its_checksum(*images);
    return is_damaged_ ? std::nullopt : images;
  }

  void make_key() {
    const std::string folder =
        std::filesystem::absolute(folder_).lexically_normal().string();
    const std::string settings = fmt::format(
        "{} {} {} {}", wanted_.size.height, wanted_.size.width, wanted_.channels,
        folder);
    key_ = settings + '\0';
    for (const auto& file : listing_.files) {
      key_ += file.version + ' ' + file.path + '\0';
    }
    cache_ = cache_directory() + "/images/" +
             sha256_hex(settings.data(), settings.size()).substr(0, kNameDigits);
  }

  DecodedImages decode_to_cache() {
    const ImageShape shape = find_shape();
    const size_t begin = image_cache_header(key_, shape, num_images_, 0).size();
    const size_t bytes = begin + pixel_bytes(shape);
    std::optional<SharedMemory> memory;
    bool is_decoded = false;
    try {
      remove_unfinished(cache_);
      replace_file(cache_, [&](int fd) {
        if (const int reason = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
            reason != 0) {
          errno = reason;
          fail_on_file("write", cache_);
        }
        memory.emplace(fd, bytes, cache_);
        log_info(fmt::format(
            "decoding {} image{} of {} into {} ({})", num_images_,
            num_images_ == 1 ? "" : "s", folder_, cache_,
            is_damaged_ ? "again, because the file is damaged"
                        : "only at the first use"));
        uint8_t* const pixels = memory->data() + begin;
        decode(shape, pixels);
        is_decoded = true;
        const auto header = image_cache_header(
            key_, shape, num_images_, fingerprint(pixels, bytes - begin));
        std::copy(header.begin(), header.end(), memory->data());
      });
    } catch (const DataError& error) {
      if (memory && !is_decoded) {
        throw;
      }
      warn(error.what());
      if (!memory) {
        return decode_to_memory(shape);
      }
    }
    // The mapping remains valid if the file could not be renamed.
    const auto data = memory->freeze();
    return {shape, {{data, data.get() + begin}, bytes - begin}};
  }

  DecodedImages decode_to_memory() {
    return decode_to_memory(find_shape());
  }

  DecodedImages decode_to_memory(const ImageShape& shape) {
    const size_t bytes = pixel_bytes(shape);
    const auto most = static_cast<size_t>(free_memory() / 2);
    if (bytes > most) {
      throw DataError(fmt::format(
          "[data] '{}' has {} bytes of pixels without a cache, more than half of the "
          "free memory ({}); {}",
          folder_, bytes, most,
          listing_.class_names.empty()
              ? "use fewer images at a time"
              : "set XDG_CACHE_HOME to a folder with space, or --image-size to a "
                "smaller size"));
    }
    SharedMemory memory(bytes);
    decode(shape, memory.data());
    return {shape, {memory.freeze(), bytes}, false};
  }

  // Reads headers, if the images determine the size or the number of channels.
  ImageShape find_shape() const {
    ImageShape shape = wanted_;
    const bool needs_size = wanted_.size == ImageSize{};
    if (!needs_size && wanted_.channels != 0) {
      return shape;
    }
    const SharedMemory memory(sizeof(Survey));
    auto* survey = new (memory.data()) Survey{};
    run_in_children(
        {num_images_, [&](int64_t i) { survey_file(i, *survey); }, path_function()},
        deadline_);
    if (needs_size) {
      shape.size = {survey->height, survey->width};
    }
    if (wanted_.channels == 0) {
      shape.channels = survey->has_color ? 3 : 1;
    }
    return shape;
  }

  void survey_file(int64_t i, Survey& survey) const {
    if (i > 0 && (wanted_.channels != 0 || survey.has_color)) {
      return;
    }
    const Bytes file = map_file(path_of(i));
    std::unique_ptr<ImageReader> reader;
    try {
      reader = open_image(text_of(file), path_of(i));
    } catch (const DataError&) {
      // decode() reports the first file with an error, which may have a good header.
      if (i > 0) {
        return;
      }
      throw;
    }
    if (i == 0) {
      survey.height = reader->size().height;
      survey.width = reader->size().width;
    }
    if (reader->channels() == 3) {
      survey.has_color = true;
    }
  }

  void decode(const ImageShape& shape, uint8_t* pixels) const {
    run_in_children(
        {num_images_,
         [&](int64_t i) {
           const Bytes file = map_file(path_of(i));
           uint8_t* const to = pixels + i * shape.bytes();
           if (wanted_.size == ImageSize{}) {
             check_size(text_of(file), i, shape.size);
           }
           decode_image(text_of(file), path_of(i), shape, to);
         },
         path_function()},
        deadline_);
  }

  // Throws DataError if the size of image `i` differs from the size of the first image.
  void check_size(std::string_view bytes, int64_t i, const ImageSize& first) const {
    const ImageSize size = open_image(bytes, path_of(i))->size();
    if (size != first) {
      fail_image(
          path_of(i),
          fmt::format(
              "has {} x {} pixels (height x width), and '{}' has {} x {}, expected "
              "images of one size; set --image-size",
              size.height, size.width, path_of(0), first.height, first.width));
    }
  }

  size_t pixel_bytes(const ImageShape& shape) const {
    return static_cast<size_t>(num_images_ * shape.bytes());
  }

  std::string path_of(int64_t i) const {
    return folder_ + "/" + listing_.files[static_cast<size_t>(i)].path;
  }

  std::function<std::string(int64_t)> path_function() const {
    return [this](int64_t i) { return path_of(i); };
  }

  void warn(const std::string& reason) const {
    log_warning(
        "[data] the images of '" + folder_ +
        "' are kept in memory and decoded again at the next start, because they cannot "
        "be cached: " +
        reason);
  }

  const std::string folder_;
  // Size and channels that the caller requests; 0: as in the files.
  const ImageShape wanted_;
  const Deadline& deadline_;
  const bool checks_cache_;
  ImageListing listing_;
  const int64_t num_images_;
  // Path of the cache file, and the text that describes the images in it.
  std::string cache_;
  std::string key_;
  // True if the file has the key, but its pixels do not have their checksum.
  bool is_damaged_ = false;
};

}  // namespace

ImageFolder read_image_folder(
    const std::string& folder, const ImageShape& wanted, const Deadline& deadline,
    bool checks_cache) {
  const std::string path = without_slashes(folder);
  return FolderReader(path, list_images(path), wanted, deadline, checks_cache).read();
}

ImageFolder read_loose_images(
    const std::string& path, const ImageShape& wanted, const Deadline& deadline) {
  std::error_code ignored;
  std::string folder = without_slashes(path);
  if (!std::filesystem::is_directory(path, ignored)) {
    folder = std::filesystem::path(path).parent_path();
    folder = folder.empty() ? "." : folder;
  }
  return FolderReader(folder, list_loose_images(path), wanted, deadline).read();
}

}  // namespace tandem
