#pragma once

#include <memory>

#include "tandem/exec/bound_layers.h"
#include "tandem/exec/compiled/onednn_memory.h"
#include "tandem/model/dropout.h"

namespace tandem {

/// What changes from one pass to the next.
struct OnednnPass {
  SampleContext samples;
  // Changes with the parameters: packed copies of another version are stale.
  int64_t parameters_version = 0;
};

/// A layer, compiled for one input size and layout. Memory is planned once: after
/// plan_forward() and plan_backward() nothing is allocated. Not thread-safe.
class OnednnOp {
 public:
  explicit OnednnOp(const OnednnContext& context) : context_(context) {}
  virtual ~OnednnOp() = default;

  /// Returns where the output will be, in the layout and type that suit the operation.
  virtual dnnl::memory plan_forward(const dnnl::memory& input) = 0;

  /// `grad_output` has any layout and type. Returns where the input's gradient will
  /// be; an empty memory unless `wants_input_grad`.
  virtual dnnl::memory plan_backward(
      const dnnl::memory& grad_output, bool wants_input_grad) = 0;

  virtual void forward(const OnednnPass& pass) = 0;

  /// Writes parameters' gradients into the arena; `accumulate`: adds them.
  virtual void backward_parameters(bool accumulate) {
    static_cast<void>(accumulate);
  }
  virtual void backward_input() = 0;

 protected:
  const dnnl::stream& stream() const {
    return context_.stream;
  }
  dnnl::memory make(const dnnl::memory::desc& desc) const {
    return {desc, context_.engine};
  }
  dnnl::prop_kind forward_kind() const {
    return context_.training ? dnnl::prop_kind::forward_training
                             : dnnl::prop_kind::forward_inference;
  }

  OnednnContext context_;
};

/// Compiles a layer, in the form that suits it best.
std::unique_ptr<OnednnOp> make_onednn_op(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);

/// The two forms that it chooses from: as `context.compute` has it, and in float32 with
/// values that are rounded to what `context.rounding` says.
std::unique_ptr<OnednnOp> make_plain_onednn_op(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);
std::unique_ptr<OnednnOp> make_rounded_op(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);

std::unique_ptr<OnednnOp> make_onednn_convolution(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);
/// A form for a first layer of few channels.
bool fits_small_convolution(const FusedLayer& fused);
std::unique_ptr<OnednnOp> make_onednn_small_convolution(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);
/// A form for windows of 3 x 3 in float32, on AVX-512 and AVX2, and of 5 x 5 on AVX2.
bool fits_winograd(const FusedLayer& fused, const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_winograd(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);
/// The output is float32, whatever it computes in.
std::unique_ptr<OnednnOp> make_onednn_linear(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_batch_norm(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_max_pool(
    const FusedLayer& fused, const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_dropout(
    const Layer& layer, const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_relu(const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_flatten(const OnednnContext& context);
std::unique_ptr<OnednnOp> make_onednn_log_softmax(const OnednnContext& context);

}  // namespace tandem
