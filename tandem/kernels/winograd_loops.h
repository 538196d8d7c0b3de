#pragma once

#include <cstdint>

namespace tandem {

/// Shape of a convolution with stride 1, for Winograd's algorithm.
///
/// A window of 3 x 3 uses F(4x4, 3x3): a tile of 4 x 4 outputs needs 36 products for
/// each pair of channels instead of 144. A window of 5 x 5 uses F(2x2, 5x5): a tile of
/// 2 x 2 outputs needs 36 products instead of 100. Each of the three steps below
/// processes a run of neighboring tiles, so intermediate values stay in the L2 cache.
///
///   6 x 6 inputs -> 36 values of each channel
///   36 matrix products: [tiles x in] * [in x out]
///   36 values -> 4 x 4 or 2 x 2 outputs of each channel
///
/// The inputs of neighboring tiles overlap by kernel - 1 pixels.
///
/// Images are float32 in blocks of channels, oneDNN's nChw16c on AVX-512 and nChw8c on
/// AVX2 and NEON. A pixel of a block is one vector, or two vectors on NEON.
///
/// Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.
struct WinogradShape {
  int64_t images = 0;
  int64_t in_channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Padding on each side of the image, in pixels; less than the size of the window.
  int64_t padding = 0;
  int64_t out_channels = 0;
  // Height and width of the window, in pixels: 3 or 5.
  int64_t kernel = 3;

  int64_t out_height() const {
    return height + 2 * padding - kernel + 1;
  }
  int64_t out_width() const {
    return width + 2 * padding - kernel + 1;
  }
  /// Returns the height and width of a tile's outputs.
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
  /// Returns the number of transformed weights, which is also the number of sums for
  /// the gradient of the weights.
  int64_t points() const {
    return 36 * in_channels * out_channels;
  }
};

/// Functions for one instruction set. Numbers of channels are multiples of `block`.
/// Pointers to images, transformed weights and scratch memory must be aligned to 64
/// bytes.
struct WinogradKernels {
  /// Number of channels in a block.
  int64_t block;
  /// Number of tiles in a run, which a kernel processes at a time. It is a multiple of
  /// 6, the number of rows in a block of products.h.
  int64_t tiles;

  /// Returns the size of a call's scratch memory, in floats. A convolution from 32 to
  /// 64 channels needs 652.5 KiB on AVX-512 and 328.5 KiB on AVX2 and NEON. The memory
  /// has this layout:
  ///
  ///   36 times  | tile 0: in channels  | tile 1 | ... | last tile | 16 unused floats |
  ///   36 times  | tile 0: out channels | tile 1 | ... | last tile | 16 unused floats |
  int64_t scratch(const WinogradShape& shape) const {
    // Without the unused floats, the distances between a tile's 36 values would be
    // multiples of 3 KiB. All 36 values would then be in a few sets of the cache.
    return 36 * (tiles * (shape.in_channels + shape.out_channels) + 2 * 16);
  }

  /// Transforms weights [out][in][kernel][kernel] to factors of the products,
  /// [36][in][out]. With `backward`, transforms them to the factors for the input's
  /// gradient, [36][out][in].
  void (*weights)(
      const WinogradShape& shape, const float* weights, bool backward,
      float* transformed);

  /// Computes the tiles [first, last) of the output. `bias` may be null. With `relu`,
  /// negative outputs become zero.
  void (*convolve)(
      const WinogradShape& shape, int64_t first, int64_t last, const float* in,
      const float* transformed, const float* bias, bool relu, float* out,
      float* scratch);

  /// Adds the contribution of the tiles [first, last) to the transformed gradient of
  /// the weights (`sums`) and to the gradient of the bias (`bias_sums`).
  void (*gradient)(
      const WinogradShape& shape, int64_t first, int64_t last, const float* in,
      const float* grad_output, float* sums, float* bias_sums, float* scratch);

  /// Transforms the sums of gradient() into the weights' gradient,
  /// [out][in][kernel][kernel]. Adds the result to `weights_grad` if `accumulate` is
  /// true, otherwise overwrites `weights_grad`.
  void (*finish)(
      const WinogradShape& shape, const float* sums, bool accumulate,
      float* weights_grad);
};

// Kernels for AVX-512, AVX2 and NEON. Use kernels only if kernel_isa() is their
// instruction set or a better one.
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
