#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/data/images/axis_weights.h"

namespace tandem {

/// Functions that resize rows of bytes with one instruction set. All instruction sets
/// give the same bits: those of Pillow.
struct RowFunctions {
  // Resizes a row of RGB pixels horizontally: writes the pixels of across.windows.
  // Reads up to ImageReader::kRowPadding bytes after `row`, and writes up to
  // kRowPadding bytes after the result.
  void (*across)(const uint8_t* row, const AxisWeights& across, uint8_t* to);
  // Writes the weighted sum of the rows of a window of `down`. There is an even number
  // of rows; the weight of an additional row is zero. `size` is the number of bytes of
  // a row, a multiple of kRowStep.
  void (*down)(
      const std::vector<const uint8_t*>& rows, const AxisWeights& down,
      const AxisWeights::Window& window, size_t size, uint8_t* to);

  static constexpr size_t kRowStep = 16;
  static constexpr size_t kRowPadding = 1;
};

/// Returns the functions that this CPU can run, fastest first.
std::vector<RowFunctions> row_functions();

/// Resizes a row of gray pixels horizontally.
void resize_gray(const uint8_t* row, const AxisWeights& across, uint8_t* to);

/// Copies each channel of a row of RGB pixels to its plane.
void split_rgb(
    const uint8_t* row, int64_t width, uint8_t* red, uint8_t* green, uint8_t* blue);

}  // namespace tandem
