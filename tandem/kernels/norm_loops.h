#pragma once

#include <cstdint>

namespace tandem {

enum class Bf16 : uint16_t;

/// A plane of batch normalisation: pixels, each of `lanes` neighbouring channels, a
/// multiple of 8. In nhwc a plane is an image, in nChw16c and nChw8c 16 or 8 channels
/// of one.
struct NormPlane {
  int64_t pixels = 0;
  int64_t lanes = 0;
};

/// What the loops need of each lane's channel; they point at as many values as there
/// are lanes. Only the gradients need the last two.
struct NormChannels {
  const float* mean = nullptr;
  // Weight over standard deviation.
  const float* scale = nullptr;
  const float* bias = nullptr;
  // The mean of the output's gradient.
  const float* mean_grad = nullptr;
  // The mean of the output's gradient times (input - mean), over the variance.
  const float* slope = nullptr;
};

// The loops over one plane, for each instruction set that there is code for. A plane is
// read two or three times, each time front to back, and at most twice of them from the
// second-level cache: 28 x 28 pixels of 16 lanes are 50 KiB. T: float or Bf16; sums are
// float32.
//
// norm_moments: each lane's mean, and its sum of squared distances from that mean.
// norm_forward: out = (in - mean) * scale + bias; with `relu` not less than 0.
// norm_gradient_sums: each lane's sum of the gradient, and that of the gradient times
//   (in - mean).
// norm_backward: grad_in = scale * (grad - mean_grad - (in - mean) * slope).
//
// `out` is null without a ReLU; with one, the gradient counts where `out` is above 0.
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
