#pragma once

#include "tandem/data/images/image_reader.h"

namespace tandem {

/// Size and channels to which images are converted.
struct ImageShape {
  ImageSize size;
  // 1: gray. 3: RGB.
  int64_t channels = 3;

  /// Returns the number of bytes of an image.
  int64_t bytes() const {
    return channels * size.height * size.width;
  }
};

/// Decodes an image and converts it to `shape`, resized and cropped according to
/// plan_resize(). Writes shape.bytes() bytes to `planes`: channels x height x width.
///
/// For shape.channels = 1, RGB values become gray with Pillow's weights
/// (`convert("L")`). For shape.channels = 3, all channels of a gray image are equal.
///
/// `path` is the name in errors. Throws the DataErrors of open_image(). The content of
/// `planes` is then undefined.
void decode_image(
    std::string_view bytes, const std::string& path, const ImageShape& shape,
    uint8_t* planes);

}  // namespace tandem
