#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "tandem/exec/compiled/amx_weights_gradient.h"
#include "tandem/exec/compiled/node_reader.h"
#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/onednn_primitives.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

using dnnl::algorithm;
using dnnl::memory;

class Convolution : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    input_ = input;
    in_dims_ = dims_of(input);
    out_dims_ = {in_dims_[0], layer_.out, extent(in_dims_[2]), extent(in_dims_[3])};
    pd_ = with_fastest([&](algorithm which) {
      return onednn::describe<dnnl::convolution_forward>(
          context_.engine, attributes_with_relu(relu_), forward_kind(), which,
          images(in_dims_), weights(context_.product()), bias(), images(out_dims_),
          stride(), padding(), padding());
    });
    output_ = make_value(pd_.dst_desc());
    source_ = product_.plan_forward(
        pd_, input, tensors_.weight, tensors_.bias, output_, context_);
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    // The output is the ReLU's mask, so the gradient of the output needs the same
    // layout.
    grad_output_ = relu_ ? grad_change_.plan(grad_output, output_.get_desc(), context_)
                         : grad_output;
    if (tensors_.is_trained()) {
      plan_weights_gradient();
    }
    const memory grad_input = wants_input_grad ? plan_input_gradient() : memory();
    share_scratch();
    return grad_input;
  }

  void forward(const OnednnPass& pass) override {
    product_.forward(pass.parameters_version, stream());
  }

  void backward_parameters(bool accumulate) override {
    grad_change_.run(stream());
    if (relu_) {
      with_type(output_, [&](auto type) {
        using T = decltype(type);
        rectify_gradient(
            data_of<T>(output_), elements_of(output_), data_of<T>(grad_output_));
      });
    }
    if (!tensors_.is_trained()) {
      return;
    }
    weights_grad_change_.run(stream());
    if constexpr (kHasAmxKernels) {
      if (amx_weights_ != nullptr) {
        amx_weights_->run(
            accumulate, tensors_.weight_grad.data_ptr<float>(),
            tensors_.bias_grad.data_ptr<float>());
        return;
      }
    }
    weights_input_change_.run(stream());
    add_up();
    store_weights_.run(stream(), accumulate);
    store_gradient(
        data_of<float>(diff_bias_), layer_.out, accumulate,
        tensors_.bias_grad.data_ptr<float>());
  }

  void backward_input() override {
    product_.backward(stream());
  }

 private:
  // Gradients of the weights and the bias over some of the images, computed by one
  // thread.
  struct WeightsPart {
    memory weights;
    memory bias;
    BoundPrimitive primitive;
  };

  // Largest number of parts of a batch.
  static constexpr int64_t kMostParts = 8;
  // Most sums of all parts: 32 MiB.
  static constexpr int64_t kMostSums = int64_t{1} << 23;

  int64_t extent(int64_t in) const {
    return (in + 2 * layer_.padding - layer_.kernel) / layer_.stride + 1;
  }

  // With bfloat16, forward and backward prefer different layouts, but these layouts
  // save less time than a change of layout costs.
  memory::desc images(const OnednnDims& dims) const {
    return context_.product() == OnednnType::bf16
               ? memory::desc(dims, OnednnType::bf16, memory::format_tag::nhwc)
               : any_desc(dims, context_.product());
  }

  memory::desc weights(OnednnType type) const {
    return any_desc(tensors_.weight.sizes().vec(), type);
  }
  memory::desc bias() const {
    return plain_desc({layer_.out});
  }
  OnednnDims stride() const {
    return {layer_.stride, layer_.stride};
  }
  OnednnDims padding() const {
    return {layer_.padding, layer_.padding};
  }

  // Uses Winograd's algorithm for 3x3 windows if oneDNN supports this shape on this
  // CPU. The rule is fixed, so that all ranks and a resumed run make the same choice.
  template <typename Make>
  std::invoke_result_t<Make, algorithm> with_fastest(Make&& make_pd) const {
    if (context_.product() == OnednnType::f32 && !has_groups(tensors_) &&
        layer_.kernel == 3 && layer_.stride == 1 && layer_.in % 16 == 0 &&
        layer_.out % 16 == 0) {
      try {
        return make_pd(algorithm::convolution_winograd);
      } catch (const dnnl::error&) {
        // oneDNN does not support the algorithm here.
      }
    }
    return make_pd(algorithm::convolution_direct);
  }

  void plan_weights_gradient() {
    if constexpr (kHasAmxKernels) {
      if (AmxWeightsGradient::fits(layer_, in_dims_, context_)) {
        amx_weights_ = std::make_unique<AmxWeightsGradient>(
            layer_, source_,
            weights_grad_change_.plan(grad_output_, output_.get_desc(), context_),
            context_);
        return;
      }
    }
    const auto pd =
        describe_weights(images(in_dims_), weights(OnednnType::f32), images(out_dims_));
    const memory source = weights_input_change_.plan(input_, pd.src_desc(), context_);
    const memory grad =
        weights_grad_change_.plan(grad_output_, pd.diff_dst_desc(), context_);
    const int64_t count = in_dims_[0];
    const int64_t parts =
        std::clamp(kMostSums / tensors_.weight.numel(), int64_t{1}, kMostParts);
    const int64_t each = (count + parts - 1) / parts;
    for (int64_t first = 0; first < count; first += each) {
      parts_.push_back(plan_part(
          pd, slice(source, first, std::min(each, count - first)),
          slice(grad, first, std::min(each, count - first))));
    }
    diff_bias_ = parts_[0].bias;
    store_weights_.plan(parts_[0].weights, tensors_.weight_grad, context_);
  }

  dnnl::convolution_backward_weights::primitive_desc describe_weights(
      const memory::desc& source, const memory::desc& weights,
      const memory::desc& grad) const {
    // Parts run on other threads, which must not share a scratchpad.
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const LoneThread lone;
    return with_fastest([&](algorithm which) {
      return onednn::describe_backward<dnnl::convolution_backward_weights>(
          context_.engine, attributes, pd_, which, source, weights, bias(), grad,
          stride(), padding(), padding());
    });
  }

  // Returns the images [first, first + count), which are contiguous in every layout.
  memory slice(const memory& whole, int64_t first, int64_t count) const {
    OnednnDims dims = dims_of(whole);
    const auto image = static_cast<int64_t>(whole.get_desc().get_size()) / dims[0];
    dims[0] = count;
    return {
        whole.get_desc().submemory_desc(dims, OnednnDims(dims.size(), 0)),
        context_.engine, data_of<char>(whole) + first * image};
  }

  WeightsPart plan_part(
      const dnnl::convolution_backward_weights::primitive_desc& whole,
      const memory& source, const memory& grad) {
    const auto pd =
        describe_weights(source.get_desc(), whole.diff_weights_desc(), grad.get_desc());
    const LoneThread lone;
    WeightsPart part{
        make_scratch(pd.diff_weights_desc()), make_scratch(pd.diff_bias_desc()), {}};
    part.primitive = {
        dnnl::convolution_backward_weights(pd),
        {{DNNL_ARG_SRC, source},
         {DNNL_ARG_DIFF_DST, grad},
         {DNNL_ARG_DIFF_WEIGHTS, part.weights},
         {DNNL_ARG_DIFF_BIAS, part.bias},
         {DNNL_ARG_SCRATCHPAD, make_scratch(pd.scratchpad_desc())}}};
    return part;
  }

  // Computes the gradient of each part, then adds the parts in order to the first part,
  // so that the result does not depend on the number of threads.
  void add_up() {
    for_each_on_lone_thread(static_cast<int64_t>(parts_.size()), [&](int64_t i) {
      parts_[static_cast<size_t>(i)].primitive.run(stream());
    });
    const WeightsPart& sum = parts_[0];
    for (size_t i = 1; i < parts_.size(); ++i) {
      store_gradient(
          data_of<float>(parts_[i].weights), elements_of(sum.weights), true,
          data_of<float>(sum.weights));
      store_gradient(
          data_of<float>(parts_[i].bias), layer_.out, true, data_of<float>(sum.bias));
    }
  }

  memory plan_input_gradient() {
    const auto pd = with_fastest([&](algorithm which) {
      return onednn::describe_backward<dnnl::convolution_backward_data>(
          context_.engine, {}, pd_, which, images(in_dims_),
          weights(context_.product()), images(out_dims_), stride(), padding(),
          padding());
    });
    return product_.plan_backward(pd, grad_output_, tensors_.weight, context_);
  }

  OnednnDims in_dims_;
  OnednnDims out_dims_;
  // Input in the layout that the forward primitive reads.
  memory source_;
  memory diff_bias_;
  dnnl::convolution_forward::primitive_desc pd_;
  PackedProduct product_;
  std::vector<WeightsPart> parts_;
  // Replaces `parts_` if it supports the convolution; otherwise null.
  std::unique_ptr<AmxWeightsGradient> amx_weights_;
  GradientStore store_weights_;
  LayoutChange weights_input_change_;
  LayoutChange weights_grad_change_;
};

std::unique_ptr<OnednnOp> make_conv2d(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  if (has_groups(tensors)) {
    return make_op<Convolution>(fused, tensors, context);
  }
  if (fits_small_convolution(fused)) {
    return make_onednn_small_convolution(fused, tensors, context);
  }
  // At 8192 input channels times output channels, the transformed weights take 1.125
  // MiB; larger weights would not stay in the L2 cache.
  if (fits_winograd(fused, context, /*tiles=*/1)) {
    return make_onednn_winograd(fused, tensors, context);
  }
  return make_op<Convolution>(fused, tensors, context);
}

// conv2d(input, weight, bias, stride, padding, dilation, groups)
void read_conv2d(NodeReader& reader) {
  const Value* weight = reader.state(1, "weight");
  reader.state(2, "bias");
  reader.expect_square(3, "stride", 1);
  reader.layer.padding = reader.square(4, "padding");
  reader.expect_square(5, "dilation", 1);
  reader.expect(reader.number(6) == 1, "it has groups");
  if (weight != nullptr) {
    const auto& shape = weight->shape;
    reader.layer.out = shape[0].fixed;
    reader.layer.in = shape[1].fixed;
    reader.layer.kernel = shape[2].fixed;
    reader.expect(shape[2] == shape[3], "its kernel is not square");
  }
}

}  // namespace

KernelRow kernel_row(KindTag<LayerKind::conv2d> kind) {
  return {kind, {"aten::conv2d"}, &make_conv2d, &read_conv2d, Bf16Output::bf16};
}

}  // namespace tandem
