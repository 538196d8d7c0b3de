#pragma once

#include "tandem/exec/compiled/onednn_memory.h"
#include "tandem/kernels/amx_convolution.h"
#include "tandem/model/layers.h"

namespace tandem {

/// The gradients of a convolution's weights and bias, by a kernel of our own with AMX
/// tiles; it is about three times as fast as oneDNN's. Memory is planned once. The
/// results do not depend on the number of threads. Not thread-safe.
class AmxWeightsGradient {
 public:
  /// Whether it can compute them: in bfloat16, on this CPU, with windows that move by
  /// one pixel, whole tiles of channels, and images that the L2 cache holds.
  static bool fits(
      const Layer& layer, const OnednnDims& input_dims, const OnednnContext& context);

  /// Both memories are bfloat16 with channels last.
  AmxWeightsGradient(
      const Layer& layer, const dnnl::memory& input, const dnnl::memory& grad_output,
      const OnednnContext& context);

  /// Writes both gradients; `accumulate`: adds to them.
  void run(bool accumulate, float* weight_grad, float* bias_grad) const;

 private:
  void lay_out(int64_t first, int64_t count) const;

  amx::ConvolutionShape shape_;
  int64_t count_;
  // The number of images laid out at once.
  int64_t group_;
  dnnl::memory input_;
  dnnl::memory grad_output_;
  dnnl::memory images_;
  dnnl::memory grads_;
  dnnl::memory sums_;
  // The sums over each image's pixels, [image x channel].
  dnnl::memory bias_grads_;
};

}  // namespace tandem
