#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// A convolution of images with few channels, stride 1: so few taps that AVX-512 has a
/// register for the sums of each.
///
/// The input is float32 in rows, [channels][height][width], padding included; weights
/// are [taps][out_channels], a tap being (channel, row, column) of the window. The
/// channels of the output are in groups of `lanes`; 16 of them in nChw16c lie so:
///   | pixel 0: group 0 | pixel 1: group 0 | ... | pixel 0: group 1 | ...
struct SmallConvShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t out_channels = 0;
  // The distance from one pixel of the output to the next, in elements.
  int64_t pixel_stride = 0;
  // The output channels that are computed together: 4, 8 or 16.
  int64_t lanes = 0;
  // Where each group of lanes begins in a pixel of the output, in elements.
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

/// The taps that there is code for: 3x3 and 5x5 on one channel, 3x3 on three.
constexpr int64_t kSmallConvTaps[] = {9, 25, 27};

// The loops over one image, for each instruction set that there is code for.
//
// small_conv computes the output; with `relu` negative values become zero.
//
// small_conv_gradient sums over the image's pixels to [taps + 1][out_channels]; the
// last row is the bias's. Unless `output`, a ReLU's, is null, gradients do not count
// where it is zero.
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
