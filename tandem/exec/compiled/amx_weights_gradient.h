#pragma once

#include "tandem/exec/compiled/onednn_memory.h"
#include "tandem/kernels/amx_convolution.h"
#include "tandem/model/layers.h"

namespace tandem {

/// Computes the gradients of a convolution's weights and bias with AMX tiles, about
/// three times as fast as oneDNN. The constructor allocates all memory. The results do
/// not depend on the number of threads. Not thread-safe.
class AmxWeightsGradient {
 public:
  /// Returns whether the kernel supports the convolution. The kernel needs bfloat16, a
  /// CPU with AMX, stride 1, channels in whole tiles, and images that fit into the L2
  /// cache.
  static bool fits(
      const Layer& layer, const OnednnDims& input_dims, const OnednnContext& context);

  /// Plans the computation for `input` and `grad_output`, which run() reads. Both are
  /// bfloat16 with channels last.
  AmxWeightsGradient(
      const Layer& layer, const dnnl::memory& input, const dnnl::memory& grad_output,
      const OnednnContext& context);

  /// Computes the gradients of the weights and the bias. Overwrites `weight_grad` and
  /// `bias_grad`, or adds to them if `accumulate` is true.
  void run(bool accumulate, float* weight_grad, float* bias_grad) const;

 private:
  void lay_out(int64_t first, int64_t count) const;

  amx::ConvolutionShape shape_;
  int64_t count_;
  // Number of images that are in `images_` and `grads_` at the same time.
  int64_t group_;
  dnnl::memory input_;
  dnnl::memory grad_output_;
  dnnl::memory images_;
  dnnl::memory grads_;
  dnnl::memory sums_;
  // Sums of `grad_output` over the pixels of each image, [image x channel].
  dnnl::memory bias_grads_;
};

}  // namespace tandem
