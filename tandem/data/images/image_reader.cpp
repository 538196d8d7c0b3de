#include "tandem/data/images/image_reader.h"

#include <fmt/core.h>

#include "tandem/base/error.h"

namespace tandem {

namespace {

constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpegMagic = "\xff\xd8\xff";

bool starts_with(std::string_view bytes, std::string_view magic) {
  return bytes.substr(0, magic.size()) == magic;
}

}  // namespace

void fail_image(const std::string& path, const std::string& what) {
  throw DataError("[data] '" + path + "' " + what);
}

void check_pixels(const ImageSize& size, const std::string& path) {
  if (size.height * size.width > kMostPixels) {
    fail_image(
        path, fmt::format(
                  "has {} x {} pixels, expected at most {} million pixels; make it "
                  "smaller or remove it",
                  size.height, size.width, kMostPixels / 1'000'000));
  }
}

std::unique_ptr<ImageReader> open_image(
    std::string_view bytes, const std::string& path) {
  if (starts_with(bytes, kPngMagic)) {
    return open_png(bytes, path);
  }
  if (starts_with(bytes, kJpegMagic)) {
    return open_jpeg(bytes, path);
  }
  fail_image(
      path, bytes.empty() ? "is empty, expected an image; copy it again or remove it"
                          : "has other content than its name says, expected a PNG or "
                            "JPEG image; convert or remove it");
}

}  // namespace tandem
