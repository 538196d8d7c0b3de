#pragma once

#include <cstdint>
#include <vector>

#include "tandem/data/images/image_reader.h"

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

/// Weights with which the pixels of one axis are resized: a triangle filter, which is
/// as wide as the reduction requires (anti-aliasing).
///
/// Coefficients are those of Pillow 9 (`precompute_coeffs` in
/// https://github.com/python-pillow/Pillow/blob/9.4.0/src/libImaging/Resample.c) for
/// BILINEAR and 8-bit channels: fixed-point numbers with kWeightBits bits after the
/// binary point.
struct AxisWeights {
  /// Computes the weights of the pixels `first` to `first` + `count` - 1, for a resize
  /// from `from` to `resized` pixels.
  AxisWeights(int64_t from, int64_t resized, int64_t first, int64_t count);

  struct Window {
    // First source pixel, and number of source pixels.
    int64_t first = 0;
    int64_t count = 0;
    // Index of the first weight in `weights`.
    size_t at = 0;
  };
  // Upper and lower bits of two weights w0 and w1, as vectors w0, w1, w0, w1, ... for
  // products of 16-bit numbers.
  struct Pair {
    int16_t high[8];
    int16_t low[8];
  };
  static constexpr int kWeightBits = 22;

  std::vector<Window> windows;
  // The weights of a window are padded with a zero to an even number.
  std::vector<int32_t> weights;
  // The weights 2 i and 2 i + 1.
  std::vector<Pair> pairs;
  // Largest number of source pixels of a window.
  int64_t longest = 0;
};

/// Resizes an image row by row, in the order in which its rows arrive. Resizes first
/// horizontally, then vertically, and rounds to 8 bits after each step. Results have
/// the same bits as those of Pillow. Buffers only the rows that the next row of the
/// result needs.
class RowResizer {
 public:
  /// `image` is the size of the rows that arrive. `planes` receives the result:
  /// channels x height x width bytes. `channels` is 1 or 3.
  RowResizer(
      const ImageSize& image, const ResizePlan& plan, int64_t channels,
      uint8_t* planes);

  /// Adds the next row: width x channels bytes, followed by
  /// ImageReader::kRowPadding bytes that may be read.
  void add_row(const uint8_t* row);

 private:
  uint8_t* buffered(int64_t row);
  void write_row(int64_t row);

  const ImageSize size_;
  const int64_t channels_;
  uint8_t* const planes_;
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

}  // namespace tandem
