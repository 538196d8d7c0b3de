#include <cstring>
#include <utility>

#include "tandem/exec/onednn_ops.h"
#include "tandem/exec/onednn_primitives.h"
#include "tandem/exec/pointwise_kernels.h"

namespace tandem {

namespace {

using dnnl::memory;

// Rows in, rows out, all float32; the kinds of Linear differ in how they multiply.
class Linear : public OnednnOp {
 public:
  Linear(
      const FusedLayer& fused, const OnednnTensors& tensors,
      const OnednnContext& context)
      : OnednnOp(context),
        relu_(fused.relu),
        tensors_(tensors),
        out_(tensors.weight.size(0)),
        in_(tensors.weight.size(1)) {}

 protected:
  float* weight() const {
    return tensors_.weight.data_ptr<float>();
  }

  // The gradient of the output as it is before the ReLU, and the bias's.
  void finish_grad_output(bool accumulate) {
    grad_change_.run(stream());
    float* grad = data_of<float>(grad_output_);
    if (relu_) {
      rectify_gradient(data_of<float>(output_), count_ * out_, grad);
    }
    add_rows(grad, count_, out_, accumulate, tensors_.bias_grad.data_ptr<float>());
  }

  void plan_rows(int64_t count) {
    count_ = count;
    output_ = make(plain_desc({count_, out_}));
  }
  void plan_grad_output(const memory& grad_output) {
    grad_output_ = grad_change_.plan(grad_output, output_.get_desc(), context_);
  }

  bool relu_;
  OnednnTensors tensors_;
  int64_t out_;
  int64_t in_;
  int64_t count_ = 0;
  memory output_;
  memory grad_output_;

 private:
  LayoutChange grad_change_;
};

// Parameters and their gradients stay where they are: packing them costs more than a
// step's products gain.
class Float32Linear : public Linear {
 public:
  using Linear::Linear;

  memory plan_forward(const memory& input) override {
    plan_rows(dims_of(input)[0]);
    input_ = input_change_.plan(input, plain_desc({count_, in_}), context_);
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    grad_input_ = wants_input_grad ? make(plain_desc({count_, in_})) : memory();
    return grad_input_;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    float* out = data_of<float>(output_);
    for (int64_t i = 0; i < count_; ++i) {
      std::memcpy(
          out + i * out_, tensors_.bias.data_ptr<float>(),
          static_cast<size_t>(out_) * sizeof(float));
    }
    dnnl::sgemm(
        'N', 'T', count_, out_, in_, 1, data_of<float>(input_), in_, weight(), in_, 1,
        out, out_);
    if (relu_) {
      rectify(out, count_ * out_, out);
    }
  }

  void backward_parameters(bool accumulate) override {
    finish_grad_output(accumulate);
    dnnl::sgemm(
        'T', 'N', out_, in_, count_, 1, data_of<float>(grad_output_), out_,
        data_of<float>(input_), in_, accumulate ? 1 : 0,
        tensors_.weight_grad.data_ptr<float>(), in_);
  }

  void backward_input() override {
    dnnl::sgemm(
        'N', 'N', count_, in_, out_, 1, data_of<float>(grad_output_), out_, weight(),
        in_, 0, data_of<float>(grad_input_), in_);
  }

 private:
  memory input_;
  memory grad_input_;
  LayoutChange input_change_;
};

// bfloat16 products with float32 sums, from packed copies of the weights.
class Bf16Linear : public Linear {
 public:
  using Linear::Linear;

  memory plan_forward(const memory& input) override {
    plan_rows(dims_of(input)[0]);
    input_ = input;
    dnnl::primitive_attr attributes;
    if (relu_) {
      dnnl::post_ops relu;
      relu.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
      attributes.set_post_ops(relu);
    }
    pd_ = onednn::inner_product_forward(
        context_.engine, forward_kind(), source(), weights(OnednnType::bf16),
        plain_desc({out_}), output_.get_desc(), attributes);
    forward_ = {
        dnnl::inner_product_forward(pd_),
        {{DNNL_ARG_SRC, input_change_.plan(input, pd_.src_desc(), context_)},
         {DNNL_ARG_WEIGHTS, weight_change_.plan(
                                plain_over(tensors_.weight, context_.engine),
                                pd_.weights_desc(), context_)},
         {DNNL_ARG_BIAS, plain_over(tensors_.bias, context_.engine)},
         {DNNL_ARG_DST, output_}}};
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    const auto pd = onednn::inner_product_backward_weights(
        context_.engine, source(), weights(OnednnType::f32), grad(), pd_);
    const memory diff_weights = make(pd.diff_weights_desc());
    backward_weights_ = {
        dnnl::inner_product_backward_weights(pd),
        {{DNNL_ARG_SRC, weights_input_change_.plan(input_, pd.src_desc(), context_)},
         {DNNL_ARG_DIFF_DST,
          weights_grad_change_.plan(grad_output_, pd.diff_dst_desc(), context_)},
         {DNNL_ARG_DIFF_WEIGHTS, diff_weights}}};
    store_weights_.plan(diff_weights, tensors_.weight_grad, context_);
    return wants_input_grad ? plan_input_gradient() : memory();
  }

  void forward(const OnednnPass& pass) override {
    input_change_.run(stream());
    if (std::exchange(packed_version_, pass.parameters_version) !=
        pass.parameters_version) {
      weight_change_.run(stream());
      back_weight_change_.run(stream());
    }
    forward_.run(stream());
  }

  void backward_parameters(bool accumulate) override {
    finish_grad_output(accumulate);
    weights_input_change_.run(stream());
    weights_grad_change_.run(stream());
    backward_weights_.run(stream());
    store_weights_.run(stream(), accumulate);
  }

  void backward_input() override {
    data_grad_change_.run(stream());
    backward_data_.run(stream());
  }

 private:
  memory::desc source() const {
    return any_desc({count_, in_}, OnednnType::bf16);
  }
  memory::desc weights(OnednnType type) const {
    return any_desc({out_, in_}, type);
  }
  memory::desc grad() const {
    return any_desc({count_, out_}, OnednnType::bf16);
  }

  memory plan_input_gradient() {
    const auto pd = onednn::inner_product_backward_data(
        context_.engine, any_desc({count_, in_}, type_of(input_)),
        weights(OnednnType::bf16), grad(), pd_);
    const memory grad_input = make(pd.diff_src_desc());
    backward_data_ = {
        dnnl::inner_product_backward_data(pd),
        {{DNNL_ARG_DIFF_DST,
          data_grad_change_.plan(grad_output_, pd.diff_dst_desc(), context_)},
         {DNNL_ARG_WEIGHTS, back_weight_change_.plan(
                                plain_over(tensors_.weight, context_.engine),
                                pd.weights_desc(), context_)},
         {DNNL_ARG_DIFF_SRC, grad_input}}};
    return grad_input;
  }

  memory input_;
  dnnl::inner_product_forward::primitive_desc pd_;
  BoundPrimitive forward_;
  BoundPrimitive backward_weights_;
  BoundPrimitive backward_data_;
  GradientStore store_weights_;
  LayoutChange input_change_;
  LayoutChange weight_change_;
  LayoutChange back_weight_change_;
  LayoutChange weights_input_change_;
  LayoutChange weights_grad_change_;
  LayoutChange data_grad_change_;
  // Of the packed copies.
  int64_t packed_version_ = -1;
};

}  // namespace

std::unique_ptr<OnednnOp> make_onednn_linear(
    const FusedLayer& fused, const OnednnTensors& tensors,
    const OnednnContext& context) {
  if (context.compute == OnednnType::bf16) {
    return std::make_unique<Bf16Linear>(fused, tensors, context);
  }
  return std::make_unique<Float32Linear>(fused, tensors, context);
}

}  // namespace tandem
