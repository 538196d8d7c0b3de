#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tandem {

/// Height and width in pixels.
struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;

  friend bool operator==(const ImageSize& a, const ImageSize& b) {
    return a.height == b.height && a.width == b.width;
  }
  friend bool operator!=(const ImageSize& a, const ImageSize& b) {
    return !(a == b);
  }
};

/// Maximum number of pixels of an image.
constexpr int64_t kMostPixels = 100'000'000;

/// Reads the pixels of a PNG or JPEG file row by row, as Pillow's `Image.open()` does.
///
/// Alpha channels are dropped, palettes are replaced by their colors, and gray values
/// of fewer than 8 bits are scaled to 8 bits. The orientation in EXIF data and color
/// profiles are ignored.
///
/// The file is untrusted: the libraries that parse it may crash, so read files of users
/// in a child process (child_work.h). A reader buffers a few rows; for interlaced PNG
/// and progressive JPEG files it buffers the image.
class ImageReader {
 public:
  virtual ~ImageReader() = default;
  ImageReader() = default;
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  /// Returns the size in the file's header.
  ImageSize size() const {
    return size_;
  }
  /// Returns the number of channels of next_row(): 1 for gray values, 3 for RGB.
  int64_t channels() const {
    return channels_;
  }

  /// Starts decoding. Returns the size of the decoded image, which is size() unless a
  /// JPEG file is decoded at a reduced size.
  ///
  /// A JPEG file that is at least twice as large as `needed` in both dimensions is
  /// decoded at 1/N of its size, as in Pillow's `Image.draft()`. N is the largest
  /// number of 2, 4 and 8 for which size() / N, rounded down, is not smaller than
  /// `needed`. The decoded size is size() / N, rounded up.
  virtual ImageSize start(const ImageSize& needed) = 0;
  /// Returns the next row: width x channels bytes. The caller may read kRowPadding more
  /// bytes, whose values are arbitrary. The row is valid until the next call.
  virtual const uint8_t* next_row() = 0;
  /// Checks the rest of the file. Call it after the last row.
  virtual void finish() = 0;

  static constexpr int64_t kRowPadding = 16;

 protected:
  ImageSize size_;
  int64_t channels_ = 0;
};

/// Reads the header of an image file. `path` is the name of the file in errors. `bytes`
/// must outlive the reader.
///
/// This function and all functions of the reader throw DataError if the file is not a
/// PNG or JPEG file, is damaged or ends too early. They also throw it for CMYK JPEG
/// files, 16-bit PNG files, and images of more than kMostPixels pixels.
std::unique_ptr<ImageReader> open_image(
    std::string_view bytes, const std::string& path);

/// Readers of one format, for open_image().
std::unique_ptr<ImageReader> open_jpeg(std::string_view bytes, const std::string& path);
std::unique_ptr<ImageReader> open_png(std::string_view bytes, const std::string& path);

/// Throws DataError "[data] 'PATH' WHAT".
[[noreturn]] void fail_image(const std::string& path, const std::string& what);

/// Throws DataError if the size in a header is greater than kMostPixels.
void check_pixels(const ImageSize& size, const std::string& path);

}  // namespace tandem
