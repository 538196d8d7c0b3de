#include <algorithm>

#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/onednn_primitives.h"
#include "tandem/exec/compiled/plan.h"
#include "tandem/exec/compiled/pointwise_kernels.h"

namespace tandem {

namespace {

using dnnl::memory;
using Flags = dnnl::normalization_flags;

constexpr double kMomentum = 0.1;
constexpr float kEpsilon = 1e-5F;

// oneDNN's statistics depend on the number of threads, so it gets one.
class BatchNorm : public OnednnOp {
 public:
  BatchNorm(
      const FusedLayer& fused, const OnednnTensors& tensors,
      const OnednnContext& context)
      : OnednnOp(context), tensors_(tensors) {
    flags_ = Flags::use_scale | Flags::use_shift;
    if (fused.relu) {
      flags_ |= Flags::fuse_norm_relu;
    }
    if (!context_.training) {
      flags_ |= Flags::use_global_stats;
    }
  }

  memory plan_forward(const memory& input) override {
    const LoneThread lone;
    input_ = input;
    const auto data = input.get_desc();
#if DNNL_VERSION_MAJOR >= 3
    pd_ = onednn::describe<dnnl::batch_normalization_forward>(
        context_.engine, {}, forward_kind(), data, data, kEpsilon, flags_);
#else
    pd_ = onednn::describe<dnnl::batch_normalization_forward>(
        context_.engine, {}, forward_kind(), data, kEpsilon, flags_);
#endif
    const memory output = make(pd_.dst_desc());
    mean_ = context_.training ? make(pd_.mean_desc()) : over(tensors_.running_mean);
    variance_ =
        context_.training ? make(pd_.variance_desc()) : over(tensors_.running_var);
    workspace_ = make(pd_.workspace_desc());
    forward_ = {
        dnnl::batch_normalization_forward(pd_),
        {{DNNL_ARG_SRC, input},
         {DNNL_ARG_MEAN, mean_},
         {DNNL_ARG_VARIANCE, variance_},
         {DNNL_ARG_SCALE, over(tensors_.weight)},
         {DNNL_ARG_SHIFT, over(tensors_.bias)},
         {DNNL_ARG_WORKSPACE, workspace_},
         {DNNL_ARG_DST, output}}};
    return output;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    const LoneThread lone;
    const auto data = input_.get_desc();
    const auto kind = dnnl::prop_kind::backward;
#if DNNL_VERSION_MAJOR >= 3
    const auto pd = onednn::describe_backward<dnnl::batch_normalization_backward>(
        context_.engine, {}, pd_, kind, data, data, data, kEpsilon, flags_);
#else
    const auto pd = onednn::describe_backward<dnnl::batch_normalization_backward>(
        context_.engine, {}, pd_, kind, data, data, kEpsilon, flags_);
#endif
    const memory grad_input = make(pd.diff_src_desc());
    const auto channels = plain_desc({tensors_.weight.size(0)});
    scale_grad_ = make(channels);
    shift_grad_ = make(channels);
    backward_ = {
        dnnl::batch_normalization_backward(pd),
        {{DNNL_ARG_SRC, input_},
         {DNNL_ARG_MEAN, mean_},
         {DNNL_ARG_VARIANCE, variance_},
         {DNNL_ARG_SCALE, over(tensors_.weight)},
#if DNNL_VERSION_MAJOR < 3
         // oneDNN 2 does not read it, but counts its arguments; oneDNN 3 wants one
         // fewer.
         {DNNL_ARG_SHIFT, over(tensors_.bias)},
#endif
         {DNNL_ARG_WORKSPACE, workspace_},
         {DNNL_ARG_DIFF_DST,
          grad_change_.plan(grad_output, pd.diff_dst_desc(), context_)},
         {DNNL_ARG_DIFF_SRC, grad_input},
         {DNNL_ARG_DIFF_SCALE, scale_grad_},
         {DNNL_ARG_DIFF_SHIFT, shift_grad_}}};
    return grad_input;
  }

  void forward(const OnednnPass&) override {
    {
      const LoneThread lone;
      forward_.run(stream());
    }
    if (context_.training) {
      track();
    }
  }

  // One primitive gives all three gradients.
  void backward_parameters(bool accumulate) override {
    grad_change_.run(stream());
    {
      const LoneThread lone;
      backward_.run(stream());
    }
    const int64_t channels = tensors_.weight.size(0);
    store_gradient(
        data_of<float>(scale_grad_), channels, accumulate,
        tensors_.weight_grad.data_ptr<float>());
    store_gradient(
        data_of<float>(shift_grad_), channels, accumulate,
        tensors_.bias_grad.data_ptr<float>());
  }
  void backward_input() override {}

 private:
  memory over(const at::Tensor& tensor) const {
    return plain_over(tensor, context_.engine);
  }

  // The running variance is the unbiased one, as PyTorch's is.
  void track() {
    const OnednnDims dims = dims_of(input_);
    const auto count = static_cast<double>(dims[0] * dims[2] * dims[3]);
    const double unbiased = count / std::max(1.0, count - 1);
    auto* mean = tensors_.running_mean.data_ptr<float>();
    auto* variance = tensors_.running_var.data_ptr<float>();
    for (int64_t i = 0; i < dims[1]; ++i) {
      mean[i] = static_cast<float>(
          (1 - kMomentum) * mean[i] + kMomentum * data_of<float>(mean_)[i]);
      variance[i] = static_cast<float>(
          (1 - kMomentum) * variance[i] +
          kMomentum * unbiased * data_of<float>(variance_)[i]);
    }
    *tensors_.num_batches.data_ptr<int64_t>() += 1;
  }

  OnednnTensors tensors_;
  Flags flags_ = Flags::none;
  memory input_;
  memory mean_;
  memory variance_;
  // Says which outputs the ReLU made zero.
  memory workspace_;
  memory scale_grad_;
  memory shift_grad_;
  dnnl::batch_normalization_forward::primitive_desc pd_;
  BoundPrimitive forward_;
  BoundPrimitive backward_;
  LayoutChange grad_change_;
};

}  // namespace

std::unique_ptr<OnednnOp> make_onednn_batch_norm(
    const FusedLayer& fused, const OnednnTensors& tensors,
    const OnednnContext& context) {
  return std::make_unique<BatchNorm>(fused, tensors, context);
}

}  // namespace tandem
