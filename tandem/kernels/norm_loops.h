#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// Shape of a plane in batch normalization. In nhwc a plane is an image, in nChw16c and
/// nChw8c 16 or 8 channels of an image.
struct NormPlane {
  int64_t pixels = 0;
  // Number of neighboring channels of a pixel, a multiple of 8.
  int64_t lanes = 0;
};

/// Arguments of the loops for each channel; arrays of NormPlane::lanes values. Only
/// gradients need the last two.
struct NormChannels {
  const float* mean = nullptr;
  // Weight over standard deviation.
  const float* scale = nullptr;
  const float* bias = nullptr;
  // Mean of the output's gradient.
  const float* mean_grad = nullptr;
  // Mean of the output's gradient times (input - mean), divided by the variance.
  const float* slope = nullptr;
};

// Loops over one plane, for each instruction set. They read a plane two or three times,
// front to back, and the later times from the L2 cache: 28 x 28 pixels of 16 lanes take
// 50 KiB. T: float or Bf16; sums are float32.
//
// norm_moments: each lane's mean, and its sum of squared distances from the mean.
// norm_forward: out = (in - mean) * scale + bias; with `relu` at least 0.
// norm_gradient_sums: each lane's sum of the gradient, and its sum of the gradient
// times
//   (in - mean).
// norm_backward: grad_in = scale * (grad - mean_grad - (in - mean) * slope).
//
// `out` is null without a ReLU. With a ReLU the gradient counts only where `out` is
// above 0.
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
