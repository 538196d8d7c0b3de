#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// Shape of a plane, which is the part of an image that one call of a loop processes.
/// In the layout nhwc, a plane is an image. In nChw16c and nChw8c, a plane is 16 or 8
/// channels of an image.
struct NormPlane {
  int64_t pixels = 0;
  // Number of channels of a pixel that are adjacent in memory, a multiple of 8.
  int64_t lanes = 0;
};

/// Per-channel arguments of the loops, as arrays of NormPlane::lanes values. Only
/// norm_backward reads `mean_grad` and `slope`.
struct NormChannels {
  const float* mean = nullptr;
  // Weight divided by standard deviation.
  const float* scale = nullptr;
  const float* bias = nullptr;
  // Mean of the output's gradient.
  const float* mean_grad = nullptr;
  // Mean of the output's gradient times (input - mean), divided by the variance.
  const float* slope = nullptr;
};

// Loops of batch normalization over one plane, for each instruction set. T is float or
// Bf16; sums are float32. norm_moments reads the plane twice, the second time from the
// L2 cache: 28 x 28 pixels of 16 float32 lanes have 49 KiB. The other loops read it
// once.
//
// - norm_moments: writes the mean of each lane, and the sum of the squares of (in -
//   mean).
// - norm_forward: out = (in - mean) * scale + bias. With `relu`, negative results
//   become zero.
// - norm_gradient_sums: writes the sum of each lane's gradient, and the sum of the
//   gradient times (in - mean).
// - norm_backward: grad_in = scale * (grad - mean_grad - (in - mean) * slope).
//
// In norm_gradient_sums and norm_backward, `out` is null without a ReLU. With a ReLU, a
// gradient counts as 0 unless its `out` is positive.
#define TANDEM_NORM_LOOPS_OF(T)                                                        \
  void norm_moments(const NormPlane& plane, const T* in, float* mean, float* squares); \
  void norm_forward(                                                                   \
      const NormPlane& plane, const NormChannels& channels, bool relu, const T* in,    \
      T* out);                                                                         \
  void norm_gradient_sums(                                                             \
      const NormPlane& plane, const NormChannels& channels, const T* in, const T* out, \
      const T* grad, float* sums, float* products);                                    \
  void norm_backward(                                                                  \
      const NormPlane& plane, const NormChannels& channels, const T* in, const T* out, \
      const T* grad, T* grad_in);
#define TANDEM_NORM_LOOPS(isa) \
  namespace isa {              \
  TANDEM_NORM_LOOPS_OF(float)  \
  TANDEM_NORM_LOOPS_OF(Bf16)   \
  }
TANDEM_NORM_LOOPS(avx512)
TANDEM_NORM_LOOPS(avx2)
TANDEM_NORM_LOOPS(neon)
TANDEM_NORM_LOOPS(base)
#undef TANDEM_NORM_LOOPS
#undef TANDEM_NORM_LOOPS_OF

}  // namespace tandem
