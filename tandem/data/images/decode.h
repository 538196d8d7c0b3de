#pragma once

#include <cstdint>
#include <vector>

#include "tandem/data/images/axis_weights.h"
#include "tandem/data/images/image_reader.h"
#include "tandem/data/images/resize_rows.h"

namespace tandem {

/// Plan of a resize and a crop: the image is resized until it covers the target size,
/// and its center is cropped.
struct ResizePlan {
  // Size after the resize: the smallest size with the image's proportions that covers
  // `size`. One side equals the target; the other side is rounded down.
  ImageSize resized;
  // First row and column of the crop.
  int64_t top = 0;
  int64_t left = 0;
  // Size of the crop, which is the target size.
  ImageSize size;
};

/// Returns the plan for an image. For a square target, it equals torchvision's
/// `Resize(side)` and `CenterCrop(side)`. A resize to the size of the image changes no
/// pixel.
ResizePlan plan_resize(const ImageSize& image, const ImageSize& target);

/// Resizes the rows of an image as they arrive: first horizontally, then vertically,
/// and rounds to 8 bits after each step. Results have the same bits as those of Pillow.
/// Buffers only the rows that the next row of the result needs.
class RowResizer {
 public:
  /// `image` is the size of the decoded image, and `plan` the plan of its resize.
  /// `channels` is 1 or 3. The result is written to `planes`: channels x height x width
  /// bytes. `functions` is a result of row_functions().
  RowResizer(
      const ImageSize& image, const ResizePlan& plan, int64_t channels, uint8_t* planes,
      const RowFunctions& functions = row_functions().front());

  /// Adds the next row: width x channels bytes, followed by
  /// ImageReader::kRowPadding bytes that may be read.
  void add_row(const uint8_t* row);

 private:
  uint8_t* buffered(int64_t row);
  void write_row(int64_t row);

  const ImageSize size_;
  const int64_t channels_;
  uint8_t* const planes_;
  const RowFunctions functions_;
  const AxisWeights across_;
  const AxisWeights down_;
  const size_t row_bytes_;
  // Horizontally resized rows; row r is at r % down_.longest.
  std::vector<uint8_t> buffer_;
  // The rows of a window, and their weighted sum.
  std::vector<const uint8_t*> rows_;
  std::vector<uint8_t> result_;
  // Number of the row that arrives next, and of the row that is written next.
  int64_t next_in_ = 0;
  int64_t next_out_ = 0;
};

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
