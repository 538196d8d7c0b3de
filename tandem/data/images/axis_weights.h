#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

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
  static constexpr int kWeightBits = 22;
  // Each window is padded with zeros to a multiple of this number of weights.
  static constexpr size_t kStep = 4;
  // The upper and the lower bits of a weight fit into 16 bits each.
  static constexpr int kLowBits = 11;
  // Each pair of weights w0 and w1 is stored as w0, w1, w0, w1, ..., for products of
  // vectors.
  static constexpr size_t kRepeats = 4;

  std::vector<Window> windows;
  std::vector<int32_t> weights;
  // Upper and lower bits of `weights`. The weights from an even index i on are stored
  // from the index kRepeats * i on.
  std::vector<int16_t> high;
  std::vector<int16_t> low;
  // Largest number of source pixels of a window.
  int64_t longest = 0;
};

}  // namespace tandem
