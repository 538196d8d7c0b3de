#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// Shape of a convolution with stride 1 and few input channels. A tap is one position
/// (channel, row, column) in the window.
///
/// The input is float32 in rows, [channels][height][width], including padding. The
/// weights are [taps][out_channels]. The output's channels are in groups of `lanes`.
/// Example, for 16 lanes in the layout nChw16c:
///   | pixel 0: group 0 | pixel 1: group 0 | ... | pixel 0: group 1 | ...
struct SmallConvShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t out_channels = 0;
  // Distance between neighboring pixels of the output, in elements.
  int64_t pixel_stride = 0;
  // Number of output channels that a loop computes at the same time: 4, 8 or 16.
  int64_t lanes = 0;
  // Offset of each group of `lanes` channels in a pixel of the output, in elements.
  const int64_t* group_offsets = nullptr;

  int64_t out_height() const {
    return height - kernel + 1;
  }
  int64_t out_width() const {
    return width - kernel + 1;
  }
  int64_t taps() const {
    return channels * kernel * kernel;
  }
};

/// Supported numbers of taps: windows of 3 x 3 and 5 x 5 for one channel, 3 x 3 for
/// three channels. The gradient kernel needs one sum per tap, and AVX-512 has enough
/// registers for these sums.
constexpr int64_t kSmallConvTaps[] = {9, 25, 27};

// Loops of the convolution over one image, for each instruction set.
//
// - small_conv: computes the output. With `relu`, negative values become zero.
// - small_conv_gradient: computes sums over the image's pixels, [taps +
//   1][out_channels]. The last row is the gradient of the bias. `output` is null
//   without a ReLU. With a ReLU, a gradient counts as zero unless its `output` is
//   positive.
#define TANDEM_SMALL_CONV(isa)                                                       \
  namespace isa {                                                                    \
  void small_conv(                                                                   \
      const SmallConvShape& shape, bool relu, const float* in, const float* weights, \
      const float* bias, float* out);                                                \
  void small_conv(                                                                   \
      const SmallConvShape& shape, bool relu, const float* in, const float* weights, \
      const float* bias, Bf16* out);                                                 \
  void small_conv_gradient(                                                          \
      const SmallConvShape& shape, const float* in, const float* output,             \
      const float* grad, float* sums);                                               \
  void small_conv_gradient(                                                          \
      const SmallConvShape& shape, const float* in, const Bf16* output,              \
      const Bf16* grad, float* sums);                                                \
  }
TANDEM_SMALL_CONV(avx512)
TANDEM_SMALL_CONV(avx2)
TANDEM_SMALL_CONV(neon)
TANDEM_SMALL_CONV(base)
#undef TANDEM_SMALL_CONV

}  // namespace tandem
