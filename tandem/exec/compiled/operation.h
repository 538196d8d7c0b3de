#pragma once

#include <memory>

#include "tandem/exec/compiled/bound_layers.h"
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

using MakeOnednnOp = std::unique_ptr<OnednnOp>(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);

/// Compiles a layer, in the form that suits it best.
MakeOnednnOp make_onednn_op;

/// The two forms that it chooses from: as `context.numerics.product` has it, and in
/// float32 with values that are rounded as `context.numerics.rounding` says.
MakeOnednnOp make_plain_onednn_op;
MakeOnednnOp make_rounded_op;

/// Whether, with bfloat16 products, the values of a layer's output are bfloat16.
bool has_bf16_output(const FusedLayer& fused);

MakeOnednnOp make_onednn_convolution;
/// A form for a first layer of few channels.
MakeOnednnOp make_onednn_small_convolution;
bool fits_small_convolution(const FusedLayer& fused);
/// A form for windows of 3 x 3 in float32, on AVX-512 and AVX2, and of 5 x 5 on AVX2.
MakeOnednnOp make_onednn_winograd;
bool fits_winograd(const FusedLayer& fused, const OnednnContext& context);
MakeOnednnOp make_onednn_linear;
MakeOnednnOp make_onednn_batch_norm;
MakeOnednnOp make_onednn_max_pool;
MakeOnednnOp make_onednn_dropout;
MakeOnednnOp make_onednn_relu;
MakeOnednnOp make_onednn_flatten;
MakeOnednnOp make_onednn_log_softmax;

}  // namespace tandem
