#pragma once

#include <cstdint>

namespace tandem {

/// A convolution with a window of 3 x 3 and stride 1, as Winograd's F(4x4, 3x3): a tile
/// of 4 x 4 outputs is 36 products of 6 x 6 transformed inputs, where it was 144.
/// (Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.) A run of
/// tiles goes through all of it at once, so that what lies between stays in the cache.
///
/// Images are float32 in blocks of 16 channels, oneDNN's nChw16c.
struct WinogradShape {
  int64_t images = 0;
  int64_t in_channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // 0 to 2.
  int64_t padding = 0;
  int64_t out_channels = 0;

  int64_t out_height() const {
    return height + 2 * padding - 2;
  }
  int64_t out_width() const {
    return width + 2 * padding - 2;
  }
  int64_t tile_columns() const {
    return (out_width() + 3) / 4;
  }
  int64_t tiles_per_image() const {
    return (out_height() + 3) / 4 * tile_columns();
  }
  int64_t tiles() const {
    return images * tiles_per_image();
  }
  /// Floats of transformed weights, and of sums for their gradient.
  int64_t points() const {
    return 36 * in_channels * out_channels;
  }
};

/// Tiles that are computed together.
constexpr int64_t kWinogradTiles = 48;

/// Floats that a call needs as scratch.
constexpr int64_t winograd_scratch(const WinogradShape& shape) {
  // A cache line between matrices, else their rows share few of the cache's sets.
  return 36 * (kWinogradTiles * (shape.in_channels + shape.out_channels) + 2 * 16);
}

// Only where kernel_isa() is avx512. Channels are multiples of 16; pointers to images,
// transformed weights and scratch are aligned to 64 bytes.
namespace avx512 {

/// From [out][in][3][3] to the products' factors, [36][in][out]. With `backward` those
/// that take the output's gradient to the input's: [36][out][in].
void winograd_weights(
    int64_t in_channels, int64_t out_channels, const float* weights, bool backward,
    float* transformed);

/// The tiles [first, last) of the output. `bias` may be null. With `relu` cut at zero.
void winograd_convolve(
    const WinogradShape& shape, int64_t first, int64_t last, const float* in,
    const float* transformed, const float* bias, bool relu, float* out, float* scratch);

/// Adds what the tiles [first, last) contribute to the weights' gradient, transformed,
/// and to the bias's.
void winograd_gradient(
    const WinogradShape& shape, int64_t first, int64_t last, const float* in,
    const float* grad_output, float* sums, float* bias_sums, float* scratch);

/// The weights' gradient, [out][in][3][3], from such sums; with `accumulate` added.
void winograd_finish(
    int64_t in_channels, int64_t out_channels, const float* sums, bool accumulate,
    float* weights_grad);

}  // namespace avx512

}  // namespace tandem
