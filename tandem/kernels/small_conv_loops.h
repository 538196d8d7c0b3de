#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// A convolution of images with few channels, stride 1: so few taps that a lane of
/// output channels keeps all their sums in registers.
///
/// Input: float32 in rows, [channels][height][width], padding included. Weights:
/// [taps][out_channels], a tap being (channel, row, column) of the window.
struct SmallConvShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t kernel = 0;
  int64_t out_channels = 0;
  // Of one pixel of the output, in elements.
  int64_t pixel_stride = 0;
  // Output channels that are computed together: 4, 8 or 16.
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

// For one image, on each instruction set that there is code for.
//
// small_conv: the output, with bias and, with `relu`, cut at zero.
//
// small_conv_gradient: sums over the image's pixels, [taps + 1][out_channels], the last
// row the bias's. `output`: where not null, only gradients whose output is more than
// zero count, those behind a ReLU.
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
TANDEM_SMALL_CONV(base)
#undef TANDEM_SMALL_CONV

}  // namespace tandem
