#pragma once

#include <cstdint>

namespace tandem {

/// A convolution with a window of 3 x 3 and stride 1, as Winograd's F(4x4, 3x3): a tile
/// of 4 x 4 outputs takes 36 products for each pair of channels, instead of 144.
/// (Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.) A run of
/// tiles goes through all steps at once, so that what lies between stays in the L2
/// cache:
///
///   6 x 6 inputs -> 36 values of each channel   (tiles overlap by two pixels)
///   36 times: [48 tiles x in] * [in x out]      one matrix product for each value
///   36 values -> 4 x 4 outputs of each channel
///
/// Images are float32 in blocks of 16 channels, oneDNN's nChw16c: a pixel of a block is
/// a cache line and a vector.
struct WinogradShape {
  int64_t images = 0;
  int64_t in_channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Between 0 and 2.
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
  /// The number of transformed weights, and of sums for their gradient.
  int64_t points() const {
    return 36 * in_channels * out_channels;
  }
};

/// The number of tiles in a run: eight times the rows of a block of the products.
constexpr int64_t kWinogradTiles = 48;

/// Floats that a call needs as scratch: 652.5 KiB for 32 to 64 channels.
///
///   36 times  | tile 0: in channels  | tile 1 | ... | tile 47 | 16 unused floats |
///   36 times  | tile 0: out channels | tile 1 | ... | tile 47 | 16 unused floats |
constexpr int64_t winograd_scratch(const WinogradShape& shape) {
  // Without the unused cache line a tile's 36 values would lie a multiple of 3 KiB
  // apart, and share few of the cache's sets.
  return 36 * (kWinogradTiles * (shape.in_channels + shape.out_channels) + 2 * 16);
}

// To be called only where kernel_isa() is avx512. Channels are multiples of 16;
// pointers to images, transformed weights and scratch are aligned to 64 bytes.
namespace avx512 {

/// Transforms [out][in][3][3] to the products' factors, [36][in][out]; with `backward`
/// to those that turn the output's gradient into the input's, [36][out][in].
void winograd_weights(
    int64_t in_channels, int64_t out_channels, const float* weights, bool backward,
    float* transformed);

/// Computes the tiles [first, last) of the output. `bias` may be null. With `relu`
/// negative outputs become zero.
void winograd_convolve(
    const WinogradShape& shape, int64_t first, int64_t last, const float* in,
    const float* transformed, const float* bias, bool relu, float* out, float* scratch);

/// Adds what the tiles [first, last) contribute to the transformed gradient of the
/// weights, and to the gradient of the bias.
void winograd_gradient(
    const WinogradShape& shape, int64_t first, int64_t last, const float* in,
    const float* grad_output, float* sums, float* bias_sums, float* scratch);

/// Writes the weights' gradient, [out][in][3][3], from such sums, or adds it.
void winograd_finish(
    int64_t in_channels, int64_t out_channels, const float* sums, bool accumulate,
    float* weights_grad);

}  // namespace avx512

}  // namespace tandem
