#pragma once

#include <memory>

#include "tandem/core/dropout.h"
#include "tandem/exec/compiled/bound_layers.h"
#include "tandem/exec/compiled/kernel_rows.h"
#include "tandem/exec/compiled/onednn_memory.h"

namespace tandem {

/// Arguments of a forward pass.
struct OnednnPass {
  SampleContext samples;
  // Version of the parameters. Packed copies of an older version are stale.
  int64_t parameters_version = 0;
};

/// A layer, compiled for one input size and layout. plan_forward() and plan_backward()
/// allocate all memory. Shares the memory of `tensors`. Not thread-safe.
class OnednnOp {
 public:
  OnednnOp(
      const FusedLayer& fused, const LayerTensors& tensors,
      const OnednnContext& context)
      : layer_(fused.layer), relu_(fused.relu), tensors_(tensors), context_(context) {}
  virtual ~OnednnOp() = default;

  /// Plans the forward pass for inputs in `input`. Returns the memory of the output,
  /// whose layout and type the operation chooses.
  virtual dnnl::memory plan_forward(const dnnl::memory& input) = 0;

  /// Plans the backward pass for output gradients in `grad_output`, which may have any
  /// layout and type. Returns the memory of the input's gradient; an empty memory if
  /// `wants_input_grad` is false.
  virtual dnnl::memory plan_backward(
      const dnnl::memory& grad_output, bool wants_input_grad) = 0;

  /// Computes the output in the memory that plan_forward() returned.
  virtual void forward(const OnednnPass& pass) = 0;

  /// Writes the parameters' gradients into the gradient arena, or adds them to it if
  /// `accumulate` is true. For a frozen layer, only prepares the output's gradient
  /// (LayerTensors::is_trained()). Called before backward_input().
  virtual void backward_parameters(bool accumulate) {
    static_cast<void>(accumulate);
  }

  /// Computes the input's gradient in the memory that plan_backward() returned.
  virtual void backward_input() = 0;

 protected:
  const dnnl::stream& stream() const {
    return context_.stream;
  }
  dnnl::memory make(const dnnl::memory::desc& desc) const {
    return {desc, context_.engine};
  }
  /// Returns memory for an output or a gradient, which is valid until its last reader.
  dnnl::memory make_value(const dnnl::memory::desc& desc) const {
    return context_.make(desc);
  }
  /// Returns memory that only this pass of the operation uses, forward or backward.
  dnnl::memory make_scratch(const dnnl::memory::desc& desc) {
    scratches_.push_back(context_.make(desc));
    return scratches_.back();
  }
  /// Allows other operations to use the scratch memory. Call it at the end of a plan.
  void share_scratch() {
    for (const auto& scratch : scratches_) {
      if (context_.pool != nullptr) {
        context_.pool->release(scratch);
      }
    }
    scratches_.clear();
  }
  /// Returns whether other operations overwrite scratch memory between two passes.
  bool shares_scratch() const {
    return context_.pool != nullptr;
  }
  dnnl::prop_kind forward_kind() const {
    return context_.training ? dnnl::prop_kind::forward_training
                             : dnnl::prop_kind::forward_inference;
  }

  /// Sets `input_` to the input in the layout `wanted`, into which input_change_ copies
  /// it.
  void plan_input(const dnnl::memory& input, const dnnl::memory::desc& wanted) {
    input_ = input_change_.plan(input, wanted, context_);
  }
  /// Sets `grad_output_` to the output's gradient in the layout of `output_`, into
  /// which grad_change_ copies it.
  void plan_grad_output(const dnnl::memory& grad_output) {
    grad_output_ = grad_change_.plan(grad_output, output_.get_desc(), context_);
  }

  Layer layer_;
  // True if a ReLU is fused into the layer.
  bool relu_;
  LayerTensors tensors_;
  OnednnContext context_;
  dnnl::memory input_;
  dnnl::memory output_;
  dnnl::memory grad_output_;
  dnnl::memory grad_input_;
  LayoutChange input_change_;
  LayoutChange grad_change_;

 private:
  std::vector<dnnl::memory> scratches_;
};

/// Makes an operation of the class Op.
template <typename Op>
std::unique_ptr<OnednnOp> make_op(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return std::make_unique<Op>(fused, tensors, context);
}

/// Compiles a layer for the formats and roundings in `context.numerics`.
MakeOnednnOp make_onednn_op;

/// Compiles a layer in the type context.product(), without roundings.
MakeOnednnOp make_plain_onednn_op;
/// Compiles a layer in float32, with the roundings of `context.numerics.rounding`.
MakeOnednnOp make_rounded_op;

/// Returns whether the layer's output is bfloat16 in plans with bfloat16 products.
bool has_bf16_output(const FusedLayer& fused);

/// Compiles an average pooling in float32 whose windows do not overlap, with the window
/// and the stride of the layer.
MakeOnednnOp make_onednn_average_pool;

/// Compiles a convolution with few input channels that is the model's first layer with
/// parameters.
MakeOnednnOp make_onednn_small_convolution;
/// Returns whether make_onednn_small_convolution() supports the layer.
bool fits_small_convolution(const FusedLayer& fused);
/// Compiles a float32 convolution with Winograd's algorithm.
MakeOnednnOp make_onednn_winograd;
/// Returns whether make_onednn_winograd() supports the layer and is expected to be fast
/// for outputs of this number of tiles of 4 x 4 pixels. Windows have 3 x 3 pixels or,
/// on AVX2 and NEON, 5 x 5 pixels.
bool fits_winograd(
    const FusedLayer& fused, const OnednnContext& context, int64_t tiles);

}  // namespace tandem
