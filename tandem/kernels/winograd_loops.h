#pragma once

#include <cstdint>

namespace tandem {

/// A convolution with a window of 3 x 3 and stride 1, as Winograd's F(4x4, 3x3): a tile
/// of 4 x 4 outputs takes 36 products for each pair of channels, instead of 144.
/// (Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.) A run of
/// tiles goes through all steps at once, so that what lies between stays in the L2
/// cache. A window of 5 x 5 is F(2x2, 5x5): a tile of 2 x 2 outputs takes 36 products
/// as well, instead of 100, and only the last transform differs.
///
///   6 x 6 inputs -> 36 values of each channel   (tiles overlap, 3 x 3: by two pixels)
///   36 times: [tiles x in] * [in x out]         one matrix product for each value
///   36 values -> 4 x 4 outputs of each channel
///
/// Images are float32 in blocks of channels, oneDNN's nChw16c on AVX-512 and nChw8c on
/// AVX2 and NEON: a pixel of a block is a vector, and two on NEON.
struct WinogradShape {
  int64_t images = 0;
  int64_t in_channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Less than the window's size.
  int64_t padding = 0;
  int64_t out_channels = 0;
  // 3, or 5 for windows of 5 x 5.
  int64_t kernel = 3;

  int64_t out_height() const {
    return height + 2 * padding - kernel + 1;
  }
  int64_t out_width() const {
    return width + 2 * padding - kernel + 1;
  }
  /// The height and width of a tile's outputs.
  int64_t tile() const {
    return 7 - kernel;
  }
  int64_t tile_columns() const {
    return (out_width() + tile() - 1) / tile();
  }
  int64_t tiles_per_image() const {
    return (out_height() + tile() - 1) / tile() * tile_columns();
  }
  int64_t tiles() const {
    return images * tiles_per_image();
  }
  /// The number of transformed weights, and of sums for their gradient.
  int64_t points() const {
    return 36 * in_channels * out_channels;
  }
};

/// The loops for one instruction set. Channels are multiples of `block`; pointers to
/// images, transformed weights and scratch are aligned to 64 bytes.
struct WinogradKernels {
  /// The channels of a block.
  int64_t block;
  /// The tiles of a run: a multiple of the rows of a block of the products.
  int64_t tiles;

  /// Floats that a call needs as scratch. For 32 to 64 channels these are 652.5 KiB on
  /// AVX-512 and 328.5 KiB on AVX2 and NEON.
  ///
  ///   36 times  | tile 0: in channels  | tile 1 | ... | last tile | 16 unused floats |
  ///   36 times  | tile 0: out channels | tile 1 | ... | last tile | 16 unused floats |
  int64_t scratch(const WinogradShape& shape) const {
    // Without the unused cache line a tile's 36 values would lie a multiple of 3 KiB
    // apart, and share few of the cache's sets.
    return 36 * (tiles * (shape.in_channels + shape.out_channels) + 2 * 16);
  }

  /// Transforms [out][in][kernel][kernel] to the products' factors, [36][in][out]; with
  /// `backward` to those that turn the output's gradient into the input's,
  /// [36][out][in].
  void (*weights)(
      const WinogradShape& shape, const float* weights, bool backward,
      float* transformed);

  /// Computes the tiles [first, last) of the output. `bias` may be null. With `relu`
  /// negative outputs become zero.
  void (*convolve)(
      const WinogradShape& shape, int64_t first, int64_t last, const float* in,
      const float* transformed, const float* bias, bool relu, float* out,
      float* scratch);

  /// Adds what the tiles [first, last) contribute to the transformed gradient of the
  /// weights, and to the gradient of the bias.
  void (*gradient)(
      const WinogradShape& shape, int64_t first, int64_t last, const float* in,
      const float* grad_output, float* sums, float* bias_sums, float* scratch);

  /// Writes the weights' gradient, [out][in][kernel][kernel], from such sums, or adds
  /// it.
  void (*finish)(
      const WinogradShape& shape, const float* sums, bool accumulate,
      float* weights_grad);
};

// To be called only where kernel_isa() is that one, or a better one.
namespace avx512 {
extern const WinogradKernels winograd;
}
namespace avx2 {
extern const WinogradKernels winograd;
}
namespace neon {
extern const WinogradKernels winograd;
}

}  // namespace tandem
